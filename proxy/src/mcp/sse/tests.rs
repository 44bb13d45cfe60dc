use proptest::prelude::*;

use super::*;

/// Splits a stream that comes in pieces of these lengths.
fn split(stream: &[u8], lengths: &[usize]) -> Vec<Part> {
    let mut splitter = Splitter::new(1 << 16);
    let mut parts = Vec::new();
    let mut rest = stream;
    for length in lengths {
        let (piece, behind) = rest.split_at((*length).min(rest.len()));
        splitter.push(piece, &mut parts).unwrap();
        rest = behind;
    }
    splitter.push(rest, &mut parts).unwrap();
    splitter.finish(&mut parts);
    parts
}

fn data(parts: &[Part]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    parts
        .iter()
        .filter_map(|part| match part {
            Part::Event(event) => Some((text(&event.name), text(&event.data))),
            Part::Other(_) => None,
        })
        .collect()
}

fn bytes(parts: &[Part]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|part| match part {
            Part::Event(event) => event.raw.clone(),
            Part::Other(bytes) => bytes.clone(),
        })
        .collect()
}

#[test]
fn events_are_read_as_the_standard_says() {
    for (stream, expected) in [
        ("data: a\n\n", vec![("", "a")]),
        ("data:a\r\n\r\n", vec![("", "a")]),
        ("data:  a\r\r", vec![("", " a")]),
        ("\u{feff}data: a\n\n", vec![("", "a")]),
        ("data: a\ndata: b\n\n", vec![("", "a\nb")]),
        ("data\n\n", vec![("", "")]),
        ("data\ndata\n\n", vec![("", "\n")]),
        ("event: x\nid: 1\ndata: {\ndata: }\n\ndata: b\n\n", vec![("x", "{\n}"), ("", "b")]),
        ("event: x\n\ndata: b\n\n", vec![("", "b")]),
        (": comment\n\nid: 1\nretry: 3000\n\n", vec![]),
        ("Data: a\n data: b\ndata : c\n\n", vec![]),
        ("data: a:b: c\n\n", vec![("", "a:b: c")]),
        ("data: a\n: in between\ndata: b\n\n", vec![("", "a\nb")]),
        ("data: never ended", vec![("", "never ended")]),
        ("data: a\n\u{feff}data: b\n\n", vec![("", "a")]),
    ] {
        let expected: Vec<_> = expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
        let parts = split(stream.as_bytes(), &[]);
        assert_eq!(data(&parts), expected, "{stream:?}");
        assert_eq!(bytes(&parts), stream.as_bytes(), "{stream:?}");
    }
}

#[test]
fn nothing_waits_for_what_is_to_come() {
    let mut splitter = Splitter::new(1024);
    for (piece, parts_so_far) in [
        (": ping\n", 1),
        ("\n", 1),
        ("data: a\r\n", 0),
        ("\r", 1),
        ("\n", 1),
        ("id: 7\n", 0),
        ("\n", 1),
        ("data: b\r\r", 1),
    ] {
        let mut parts = Vec::new();
        splitter.push(piece.as_bytes(), &mut parts).unwrap();
        assert_eq!(parts.len(), parts_so_far, "{piece:?}: {parts:?}");
    }
}

#[test]
fn an_event_is_rebuilt_around_its_data() {
    for (stream, with, without) in [
        ("data: a\n\n", "data: new\n\n", ""),
        ("event: x\ndata: a\n\n", "event: x\ndata: new\n\n", ""),
        // The last LF of CRLFs comes behind the event, which did not wait for it.
        (
            "id: 1\r\nevent: x\r\ndata: a\r\ndata: b\r\nretry: 5\r\n\r",
            "id: 1\r\nevent: x\r\ndata: new\r\nretry: 5\r\n\r",
            "id: 1\r\nretry: 5\r\n\r",
        ),
        ("data:a  \rid:2\r\r", "data: new\rid:2\r\r", "id:2\r\r"),
        ("data: cut short", "data: new", ""),
    ] {
        let Some(Part::Event(event)) = split(stream.as_bytes(), &[]).into_iter().next() else { panic!("{stream:?}") };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!((&*text(event.with_data(b"new")), &*text(event.without_data())), (with, without), "{stream:?}");
    }
}

#[test]
fn what_is_held_is_bounded() {
    let mut splitter = Splitter::new(16);
    let mut parts = Vec::new();
    assert_eq!(splitter.push(b"data: 12345678\n\ndata: 1234567890", &mut parts), Ok(()));
    assert_eq!(splitter.push(b"x", &mut parts), Err(TooLong));
    assert_eq!(parts.len(), 1);
    assert_eq!(Splitter::new(16).push(&[b':'; 17], &mut parts), Err(TooLong));
}

#[test]
fn line_ends_of_other_readers_are_seen() {
    let event = |stream: &str| match split(stream.as_bytes(), &[]).remove(0) {
        Part::Event(event) => event,
        other => panic!("{other:?}"),
    };
    for end in ["\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}"] {
        let inside = event(&format!("data: \"{end}\"\n\n"));
        assert!(inside.splits_elsewhere(false) && !inside.splits_elsewhere(true), "{end:?}");
        let outside = event(&format!("id: {end}data: x\ndata: 1\n\n"));
        assert!(!outside.splits_elsewhere(false) && outside.splits_elsewhere(true), "{end:?}");
        assert_eq!(split(format!(": {end}data: x{end}{end}\n\n").as_bytes(), &[]), [Part::Other(b"\n".to_vec())]);
    }
    assert_eq!(escape_line_ends("\"\u{85}é\u{2028}\u{2029}\""), "\"\\u0085é\\u2028\\u2029\"");
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "data: a", "data", "data:", "event: x", "id: 1", "retry: 1", ": c", "\n", "\r\n", "\r", "\n\n", "\u{feff}",
        "x", ":", "é",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn a_stream_may_come_in_any_pieces(stream in streams(), lengths in prop::collection::vec(0..5_usize, 0..40)) {
        let (whole, pieces) = (split(&stream, &[]), split(&stream, &lengths));
        prop_assert_eq!(bytes(&whole), &stream[..]);
        prop_assert_eq!(bytes(&pieces), &stream[..]);
        prop_assert_eq!(data(&whole), data(&pieces));
    }
}
