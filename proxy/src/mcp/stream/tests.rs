use exeat_policy::globs::NameGlobs;
use exeat_policy::manifest::ElicitationPolicy;
use proptest::prelude::*;

use super::super::policy::ServerPolicy;
use super::super::policy::tests::open;
use super::*;

fn found(explicit: bool) -> Found {
    let policy = ServerPolicy {
        elicitation: ElicitationPolicy::Url,
        tools: vec![NameGlobs::new(&[] as &[&str], &["*delete*"]).unwrap()],
        explicit,
        max_body: 4096,
        ..open("https://mcp.test/v1/mcp")
    };
    Found { policy: Arc::new(policy), exact: true }
}

fn filtered(stream: &[u8], lengths: &[usize]) -> Output {
    let asked = Arc::new(Judged { ids: vec!["1".to_owned()], ..Judged::default() });
    let mut filter = EventFilter::new(found(true), asked);
    let mut all = Output::default();
    let mut rest = stream;
    for length in lengths.iter().copied().chain([usize::MAX]) {
        let (piece, behind) = rest.split_at(length.min(rest.len()));
        let outputs = [filter.push(piece), if length == usize::MAX { filter.finish() } else { Output::default() }];
        for Output { bytes, answers, notes } in outputs {
            all.bytes.extend(bytes);
            all.answers.extend(answers);
            all.notes.extend(notes);
        }
        rest = behind;
    }
    all
}

fn text(stream: &str) -> String {
    String::from_utf8(filtered(stream.as_bytes(), &[]).bytes).unwrap()
}

const LIST: &str = "id: 4\nevent: message\ndata: {\"id\":1,\ndata: \"result\":{\"tools\":[{\"name\":\"delete\"},{\"name\":\"a\"}]}}\n\n";
const LISTED: &str = "id: 4\nevent: message\ndata: {\"id\":1, \"result\":{\"tools\":[{\"name\":\"a\"}]}}\n\n";
const FORM: &str = "id: 5\r\ndata: {\"id\":9,\"method\":\"elicitation/create\",\"params\":{}}\r\n\r\n";
const PASSES: &str = ": ping\n\nretry: 3000\nid: 0\ndata:\n\ndata: {\"method\":\"notifications/progress\" }\r\n\r\n";

#[test]
fn events_are_passed_changed_or_withheld() {
    assert_eq!(text(PASSES), PASSES);
    assert_eq!(text(LIST), LISTED);
    let output = filtered(FORM.as_bytes(), &[]);
    assert_eq!(output.bytes, b"id: 5\r\n\r\n");
    assert_eq!((output.answers.len(), output.notes.len()), (1, 1));
    assert_eq!(text(&format!("{PASSES}{LIST}{FORM}{LIST}")), format!("{PASSES}{LISTED}id: 5\r\n\r\n{LISTED}"));
}

#[test]
fn an_event_passes_as_soon_as_it_is_whole() {
    let mut filter = EventFilter::new(found(true), Arc::default());
    assert!(filter.push(b"data: {\"method\":\"a\"}").bytes.is_empty());
    assert!(filter.push(b"\n").bytes.is_empty());
    assert_eq!(filter.push(b"\n").bytes, b"data: {\"method\":\"a\"}\n\n");
}

#[test]
fn an_event_too_long_ends_the_stream_with_an_error_for_who_waits() {
    let asked = Arc::new(Judged { ids: vec!["1".to_owned()], ..Judged::default() });
    let mut filter = EventFilter::new(found(true), asked);
    let output = filter.push(&[b"data: ", &[b'x'; 5000][..]].concat());
    let text = String::from_utf8(output.bytes).unwrap();
    assert!(text.starts_with("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\"") && text.ends_with("\n\n"), "{text}");
    assert!(filter.is_broken() && filter.push(b"data: more\n\n") == Output::default());
    assert_eq!(filter.finish(), Output::default());
}

#[test]
fn readers_that_end_lines_elsewhere_see_nothing_more() {
    let form = "data: {\"id\":9,\"method\":\"elicitation/create\"}";
    let inside =
        format!("data: {{\"method\":\"n\",\"x\":\"\u{2028}\u{2028}{}\u{2028}\u{2028}\"}}\n\n", form.replace('"', "'"));
    let passed = text(&inside);
    assert!(!passed.contains('\u{2028}') && passed.contains("\\u2028\\u2028data: {'id'"), "{passed}");
    for stream in [
        format!("data: hello\u{2028}\u{2028}{form}\u{2028}\u{2028}\n\n"),
        format!("id: 1\u{85}{form}\u{85}\u{85}\ndata: {{\"method\":\"n\"}}\n\n"),
    ] {
        let passed = text(&stream);
        assert!(!passed.contains("elicitation") && passed.contains("-31005"), "{passed}");
    }
    assert_eq!(text(&format!(":{}{form}\u{c}\u{c}\n\n", '\u{c}')), "\n");
}

#[test]
fn an_endpoint_elsewhere_is_not_named() {
    let passes = |explicit: bool, place: &str| {
        let mut filter = EventFilter::new(found(explicit), Arc::default());
        let output = filter.push(format!("event: endpoint\ndata: {place}\n\n").as_bytes());
        assert_eq!(output.bytes.is_empty(), !output.notes.is_empty());
        !output.bytes.is_empty()
    };
    for (place, explicit, default) in [
        ("/v1/mcp/messages?s=1", true, true),
        ("?s=1", true, true),
        ("mcp?s=1", true, true),
        ("https://mcp.test/v1/mcp", true, true),
        ("/messages?s=1", false, true),
        ("messages", false, true),
        ("https://evil.test/v1/mcp", false, false),
        ("//evil.test/v1/mcp", false, false),
        ("\\\\evil.test", false, false),
        ("http://mcp.test/v1/mcp", false, false),
        ("https://mcp.test:8443/v1/mcp", false, false),
    ] {
        assert_eq!((passes(true, place), passes(false, place)), (explicit, default), "{place}");
    }
}

proptest! {
    #[test]
    fn a_stream_may_be_split_anywhere(
        which in prop::collection::vec(0..3_usize, 0..6),
        lengths in prop::collection::vec(0..40_usize, 0..60),
    ) {
        let stream: String = which.iter().map(|index| [PASSES, LIST, FORM][*index]).collect();
        prop_assert_eq!(filtered(stream.as_bytes(), &lengths), filtered(stream.as_bytes(), &[]));
    }
}
