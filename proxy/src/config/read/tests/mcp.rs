//! `[mcp]`.

use super::*;
use crate::config::{Encoded, RedactScope};

#[test]
fn the_endpoints_and_the_bound_are_read() {
    let config = good("[mcp]\nlisten = \"127.0.0.1:0\"\nhosts = [\"Exeat.internal\", \"gateway\"]\nmax_body = 1024\n");
    assert_eq!(config.mcp.listen, Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!(config.mcp.hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>(), ["exeat.internal", "gateway"]);
    assert_eq!(config.mcp.max_body, 1024);
    assert_eq!(good("[mcp]\nlisten = \"off\"").mcp.listen, None);
    for (text, problem) in [
        ("listen = \"on\"", "2:10 E0006 `mcp.listen`: expected an IP address with a port, found `on`"),
        ("max_body = 1", "2:12 E0006 `mcp.max_body` is 1, outside 1024 to 1073741824"),
        ("lisen = \"off\"", "2:1 E0003 unknown key `lisen` in `mcp`"),
    ] {
        assert_eq!(problems(&format!("[mcp]\n{text}")), [problem]);
    }
}

#[test]
fn tools_are_globs_by_server() {
    let config = good(
        "[mcp.docs]\ntools = { allow = [\"get_*\"], deny = [\"*secret*\"] }\n[mcp.\"a b\"]\ntools.deny = [\"x\"]\n",
    );
    let tools = |server: &str| config.mcp.servers[server].tools.clone();
    assert!(tools("docs").permits("get_x") && !tools("docs").permits("get_secret") && !tools("docs").permits("put"));
    assert!(tools("a b").permits("y") && !tools("a b").permits("x"));
    let config =
        good("[mcp.docs]\nredact = \"headers\"\n[mcp.more]\ntools.deny = [\"x\"]\nredact_encoded = \"pass\"\n");
    let docs = &config.mcp.servers["docs"];
    assert!(docs.tools.is_empty() && docs.redact.scope == Some(RedactScope::Headers) && docs.redact.encoded.is_none());
    let more = &config.mcp.servers["more"];
    assert!(!more.tools.is_empty() && more.redact.scope.is_none() && more.redact.encoded == Some(Encoded::Pass));
    for (text, problem) in [
        ("tools = { allow = [\"[\", \"\"] }", "2:20 E0006 `mcp.docs.tools.allow[0]`: "),
        ("tools = { }", "2:9 E0006 `mcp.docs.tools`: expected globs in `allow` or `deny`, found none"),
        ("tools = { allow = [] }", "2:9 E0006 `mcp.docs.tools`: expected globs in `allow` or `deny`, found none"),
        ("tools = { alow = [\"x\"], deny = [\"y\"] }", "2:11 E0003 unknown key `alow` in `mcp.docs.tools`"),
        ("tols = 1", "1:1 E0005 the key `tools` of `mcp.docs` is missing"),
    ] {
        let found = problems(&format!("[mcp.docs]\n{text}\n"));
        assert!(found.iter().any(|found| found.starts_with(problem)), "{text}: {found:?}");
    }
}
