//! `[sessions]`.

use super::*;
use crate::config::Isolate;

#[test]
fn a_session_is_described_with_paths_from_the_files_folder() {
    let text = "[sessions]\nisolate = \"require\"\ncatch = [443, 8443]\nsockets = [\"agent.sock\", \"/run/a.sock\"]\n";
    let sessions = good(text).sessions;
    assert_eq!((sessions.isolate, sessions.catch.as_slice()), (Isolate::Require, &[443, 8443][..]));
    assert_eq!(sessions.sockets, [PathBuf::from("etc/agent.sock"), "/run/a.sock".into()]);
}

#[test]
fn what_is_no_word_and_no_port_is_told() {
    let found = problems("[sessions]\nisolate = \"maybe\"\ncatch = [0, 443]\ncage = true\n");
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("isolate") && found[1].contains("catch") && found[2].contains("cage"), "{found:?}");
}
