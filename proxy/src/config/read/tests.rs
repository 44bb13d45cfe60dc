use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use exeat_policy::diag::{Diagnostic, Source};
use exeat_policy::manifest::{AuthMode, HeaderValueSpec};
use exeat_policy::policy::DefaultVerdict;

use crate::config::{AdminListen, Binding, CaFiles, Config, NextProxyProtocol, SecretSource, SniCheck};

mod credentials;
mod layers;
mod listen;
mod mcp;
mod schema;
mod sessions;
mod shipped;

/// The config of a text without problems.
fn good(text: &str) -> Config {
    let (config, problems) = Config::read(&Source::new("etc/exeat.toml", text));
    assert_eq!(lines(&problems), [""; 0], "{text}");
    config.unwrap()
}

/// The problems of a text, each as `LINE:COLUMN CODE MESSAGE`; there is a config only if none is an error.
fn problems(text: &str) -> Vec<String> {
    let (config, problems) = Config::read(&Source::new("exeat.toml", text));
    assert_eq!(config.is_some(), !exeat_policy::diag::has_errors(&problems), "{text}");
    lines(&problems)
}

/// The help of the only problem of a text.
fn help(text: &str) -> String {
    let (_, problems) = Config::read(&Source::new("exeat.toml", text));
    assert_eq!(problems.len(), 1, "{:?}", lines(&problems));
    problems[0].help.clone()
}

fn lines(problems: &[Diagnostic]) -> Vec<String> {
    let line = |problem: &Diagnostic| {
        let at = problem.start();
        format!("{}:{} {} {}", at.line, at.column, problem.code, problem.message)
    };
    problems.iter().map(line).collect()
}

/// A field's name and the value it is given.
fn literal(name: &'static str, value: &str) -> (http::HeaderName, HeaderValueSpec) {
    (http::HeaderName::from_static(name), HeaderValueSpec::Literal(value.to_owned()))
}

fn placeholder(name: &'static str, binding: &str) -> (http::HeaderName, HeaderValueSpec) {
    (http::HeaderName::from_static(name), HeaderValueSpec::Placeholder(binding.to_owned()))
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(format!("{:?}", good("")), format!("{:?}", Config::default()));
}

#[test]
fn all_problems_are_reported_at_once_and_in_order() {
    let text = "\
[listen]
proxy = 3128
prxoy = 1

[limits]
idle_timeout = \"soon\"

[polcy]
";
    assert_eq!(
        problems(text),
        [
            "2:9 E0004 `listen.proxy`: expected a string, found an integer",
            "3:1 E0003 unknown key `prxoy` in `listen`",
            "6:16 E0006 `limits.idle_timeout`: expected a whole number and a unit, found `soon`",
            "8:2 E0003 unknown key `polcy`",
        ]
    );
    assert_eq!(help("[polcy]"), "did you mean `policy`?");
    assert_eq!(help("[listen]\nprxoy = 1"), "did you mean `proxy`?");
}

#[test]
fn a_file_that_is_no_toml_is_reported() {
    let found = problems("[listen\nproxy = 1");
    assert!(found.len() == 1 && found[0].contains(" E0001 "), "{found:?}");
}

#[test]
fn every_section_is_a_table() {
    for section in [
        "listen",
        "policy",
        "intercept",
        "bindings",
        "catalog",
        "mcp",
        "guard",
        "dns",
        "upstream",
        "limits",
        "audit",
        "admin",
    ] {
        let column = section.len() + 4;
        assert_eq!(
            problems(&format!("{section} = 1")),
            [format!("1:{column} E0004 `{section}`: expected a table, found an integer")]
        );
    }
    assert_eq!(problems("inject = 1"), ["1:10 E0004 `inject`: expected an array, found an integer"]);
}

#[test]
fn listeners_are_addresses_with_ports() {
    let config = good("[listen]\nproxy = \"[::1]:0\"\n[admin]\nlisten = \"0.0.0.0:9000\"\n");
    assert_eq!(config.listen.proxy, "[::1]:0".parse().unwrap());
    assert_eq!(config.admin.listen, Some(AdminListen::Tcp("0.0.0.0:9000".parse().unwrap())));
    assert_eq!(good("[admin]\nlisten = \"off\"").admin.listen, None);
    for bad in ["", "localhost:3128", "127.0.0.1", "127.0.0.1:99999", ":3128", "off", "::1:3128"] {
        let expected = format!("2:9 E0006 `listen.proxy`: expected an IP address with a port, found `{bad}`");
        // An IPv6 address without brackets is an address without a port.
        assert_eq!(problems(&format!("[listen]\nproxy = \"{bad}\"")), [expected]);
    }
    assert_eq!(
        problems("admin.listen = \"none\""),
        ["1:16 E0006 `admin.listen`: expected an IP address with a port, found `none`"]
    );
    assert_eq!(problems("admin.listen = false"), ["1:16 E0004 `admin.listen`: expected a string, found a boolean"]);
}

#[test]
fn the_policy_names_a_default_and_manifests() {
    let config = good("[policy]\ndefault = \"deny\"\nmanifests = [\"agents/a.toml\", \"/b.yaml\"]");
    assert_eq!(config.policy.default, DefaultVerdict::Deny);
    assert_eq!(config.policy.manifests, [PathBuf::from("etc/agents/a.toml"), PathBuf::from("/b.yaml")]);
    assert_eq!(good("policy.default = \"allow\"").policy.default, DefaultVerdict::Allow);
    assert_eq!(
        problems("[policy]\ndefault = \"denny\"\nmanifests = [\"\", 3]"),
        [
            "2:11 E0006 `policy.default` does not take `denny`",
            "3:14 E0006 `policy.manifests[0]`: expected a path, found an empty string",
            "3:18 E0004 `policy.manifests[1]`: expected a string, found an integer",
        ]
    );
    assert_eq!(
        problems("policy.manifests = \"a\""),
        ["1:20 E0004 `policy.manifests`: expected an array, found a string"]
    );
}

#[test]
fn interception_takes_a_whole_ca_and_three_checks() {
    let config = good("[intercept]\nenabled = false\nca_cert = \"ca.pem\"\nca_key = \"/run/ca.key\"");
    assert!(!config.intercept.enabled);
    let ca = CaFiles { cert: PathBuf::from("etc/ca.pem"), key: PathBuf::from("/run/ca.key") };
    assert_eq!(config.intercept.ca, Some(ca));
    for (written, check) in [
        ("\"require\"", SniCheck::Require),
        ("true", SniCheck::Require),
        ("\"match\"", SniCheck::Match),
        ("\"off\"", SniCheck::Off),
        ("false", SniCheck::Off),
    ] {
        assert_eq!(good(&format!("intercept.sni_check = {written}")).intercept.sni_check, check, "{written}");
    }
    assert_eq!(
        problems("intercept.sni_check = 1"),
        ["1:23 E0004 `intercept.sni_check`: expected a string, found an integer"]
    );
    assert_eq!(problems("intercept.sni_check = \"on\""), ["1:23 E0006 `intercept.sni_check` does not take `on`"]);
    assert_eq!(
        problems("[intercept]\nca_cert = \"ca.pem\""),
        ["2:1 E0303 `intercept.ca_cert` is written without `intercept.ca_key`"]
    );
    assert_eq!(
        problems("[intercept]\nca_key = \"ca.key\""),
        ["2:1 E0303 `intercept.ca_key` is written without `intercept.ca_cert`"]
    );
    assert_eq!(
        problems("[intercept]\nca_cert = \"\"\nca_key = \"ca.key\""),
        ["2:11 E0006 `intercept.ca_cert`: expected a path, found an empty string"]
    );
}

#[test]
fn the_guard_takes_grants_and_ports() {
    let config = good("[guard]\nallow = [\"loopback\", \"10.1.0.0/16\", \"fd00::1\"]\nblocked_ports = [25, 465]");
    let permits = |ip: &str| config.guard.allow.permits(ip.parse().unwrap());
    assert!(permits("127.0.0.1") && permits("10.1.2.3") && permits("fd00::1"));
    assert!(!permits("10.2.0.1") && !permits("fd00::2") && !permits("169.254.169.254"));
    assert_eq!(config.guard.blocked_ports, [25, 465]);
    assert_eq!(good("guard.blocked_ports = []").guard.blocked_ports, [0; 0]);
    assert_eq!(
        problems("guard.blocked_ports = [0, 25, 65536, \"25\"]"),
        [
            "1:24 E0006 `guard.blocked_ports[0]` is 0, outside 1 to 65535",
            "1:31 E0006 `guard.blocked_ports[2]` is 65536, outside 1 to 65535",
            "1:38 E0004 `guard.blocked_ports[3]`: expected an integer, found a string",
        ]
    );
}

#[test]
fn each_grant_that_opens_nothing_is_refused_at_its_place() {
    let found = problems(
        "[guard]\nallow = [\n  \"localhost\",\n  \"metadata\",\n  \"192.0.0.0/1\",\n  \"10.1.0.1/16\",\n  \"8.8.8.8\",\n  \
         \"::ffff:127.0.0.1\",\n  \"loopback\",\n  5,\n]",
    );
    let places: Vec<_> = found.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "3:3 E0305 `guard.allow[0]`",
            "4:3 E0305 `guard.allow[1]`",
            "5:3 E0305 `guard.allow[2]`",
            "6:3 E0305 `guard.allow[3]`",
            "7:3 E0305 `guard.allow[4]`",
            "8:3 E0305 `guard.allow[5]`",
            "10:3 E0004 `guard.allow[7]`",
        ],
        "{found:?}"
    );
    for (entry, expected) in [
        ("localhost", "write an address, a range such as \"10.1.0.0/16\", or a class such as \"loopback\""),
        ("169.254.169.254", "remove it"),
        ("8.8.8.8", "remove it"),
        ("10.1.0.1/16", "write \"10.1.0.0/16\""),
        ("0.0.0.0/0", "write each range, such as \"10.0.0.0/8\", or class, such as \"private\""),
        ("::ffff:10.0.0.1", "write it as IPv4, such as \"127.0.0.1\""),
    ] {
        assert_eq!(help(&format!("guard.allow = [\"{entry}\"]")), expected, "{entry}");
    }
}

#[test]
fn names_have_fixed_addresses() {
    let config = good("[dns.hosts]\n\"DB.Internal.\" = \"10.1.0.5\"\n\"bücher.example\" = [\"::1\", \"127.0.0.1\"]");
    let db: IpAddr = Ipv4Addr::new(10, 1, 0, 5).into();
    assert_eq!(config.dns.hosts["db.internal"], [db]);
    assert_eq!(config.dns.hosts["xn--bcher-kva.example"].len(), 2);
    assert_eq!(
        problems(
            "[dns.hosts]\n\"*.internal\" = \"10.1.0.5\"\n\"a..b\" = \"10.1.0.5\"\n\"127.1\" = \"10.1.0.5\"\n\
             a = []\nb = \"10.1.0\"\nc = [\"::1\", 5]\nd.internal = \"::1\""
        ),
        [
            "2:1 E0006 `dns.hosts`: expected one name, found the wildcard `*.internal`",
            "3:1 E0006 `dns.hosts`: expected labels separated by single dots, found an empty label in `a..b`",
            "4:1 E0006 `dns.hosts`: expected a name, found the address `127.1`",
            "5:5 E0006 `dns.hosts.a`: expected at least one address, found an empty list",
            "6:5 E0006 `dns.hosts.b`: expected an IP address, found `10.1.0`",
            "7:13 E0004 `dns.hosts.c[1]`: expected a string, found an integer",
            "8:1 E0004 `dns.hosts.d`: expected an address or a list of addresses, found a table",
        ]
    );
    assert_eq!(
        help("dns.hosts.db.internal = \"::1\""),
        "write a name with dots in quotes, such as { \"db.internal\" = \"192.0.2.1\" }"
    );
    assert_eq!(
        problems("[dns.hosts]\n\"a.b\" = \"::1\"\n\"A.b.\" = \"::2\""),
        ["3:1 E0002 `A.b.` is another spelling of a name that stands in `dns.hosts`"]
    );
}

#[test]
fn dns_servers_are_addresses_with_or_without_port() {
    let servers =
        good("dns.servers = [\"192.0.2.1\", \"192.0.2.1:5353\", \"2001:db8::1\", \"[2001:db8::1]:54\"]").dns.servers;
    let expected = ["192.0.2.1:53", "192.0.2.1:5353", "[2001:db8::1]:53", "[2001:db8::1]:54"];
    assert_eq!(servers, expected.map(|address| address.parse::<SocketAddr>().unwrap()));
    assert_eq!(
        problems("dns.servers = [\"dns.example\", \"192.0.2.1:0\", \"[::1]\"]"),
        [
            "1:16 E0006 `dns.servers[0]`: expected the IP address of a DNS server, found `dns.example`",
            "1:31 E0006 `dns.servers[1]`: expected a port from 1, found `192.0.2.1:0`",
            "1:46 E0006 `dns.servers[2]`: expected the IP address of a DNS server, found `[::1]`",
        ]
    );
}

#[test]
fn a_next_proxy_is_a_url_without_credentials() {
    let upstream = good(
        "[upstream]\nproxy = \"http://Proxy.Test:3128/\"\nno_proxy = [\"near.test\", \"*.lan.test\"]\n\
         proxy_authorization = { file = \"secret\" }",
    )
    .upstream;
    assert_eq!(upstream.proxy.unwrap().to_string(), "http://proxy.test:3128");
    assert_eq!(upstream.proxy_authorization, Some(SecretSource::File(PathBuf::from("etc/secret"))));
    assert_eq!(upstream.no_proxy.len(), 2);
    let socks = good("upstream.proxy = \"socks5h://[::1]:1080\"").upstream.proxy.unwrap();
    assert_eq!((socks.protocol, socks.to_string().as_str()), (NextProxyProtocol::Socks5, "socks5h://[::1]:1080"));
    assert_eq!(good("upstream.proxy = \"off\"").upstream.proxy, None);
    for (proxy, problem) in [
        ("http://user:s3cret@proxy.test:3128", "E0106 `upstream.proxy`: expected a URL without credentials"),
        ("proxy.test:3128", "E0006 `upstream.proxy`: expected a URL, found `proxy.test:3128`"),
        ("socks5://proxy.test:1080", "E0006 `upstream.proxy`: expected a scheme that is served, found `socks5`"),
        ("https://proxy.test:443", "E0006 `upstream.proxy`: expected a scheme that is served, found `https`"),
    ] {
        assert_eq!(problems(&format!("upstream.proxy = {proxy:?}")), [format!("1:18 {problem}")]);
    }
    for proxy in ["http://proxy.test", "http://proxy.test:3128/path", "http://:3128", "socks5h://"] {
        assert_eq!(problems(&format!("upstream.proxy = {proxy:?}")).len(), 1, "{proxy}");
    }
    assert_eq!(
        problems("upstream.no_proxy = [\"https://a.test/\", \"*\"]\nupstream.proxy_authorization = \"user:pass\""),
        [
            "1:22 E0101 `upstream.no_proxy[0]`: expected a host or a domain, found `https://a.test/`",
            "1:41 E0101 `upstream.no_proxy[1]`: expected a host, found `*`",
            "2:32 E0106 `upstream.proxy_authorization`: expected a table with the source of the value, found a string",
        ]
    );
}

#[test]
fn upstream_cas_are_one_path_or_several() {
    assert_eq!(good("upstream.ca = \"ca.pem\"").upstream.ca, [PathBuf::from("etc/ca.pem")]);
    let several = good("upstream.ca = [\"a.pem\", \"/b.pem\"]").upstream.ca;
    assert_eq!(several, [PathBuf::from("etc/a.pem"), PathBuf::from("/b.pem")]);
    assert_eq!(problems("upstream.ca = [1]"), ["1:16 E0004 `upstream.ca[0]`: expected a string, found an integer"]);
    assert_eq!(problems("upstream.ca = true"), ["1:15 E0004 `upstream.ca`: expected a string, found a boolean"]);
    assert_eq!(problems("upstream.ca = \"\""), ["1:15 E0006 `upstream.ca`: expected a path, found an empty string"]);
}

#[test]
fn limits_are_within_their_ranges() {
    let limits = good(
        "[limits]\nheader_bytes = 1024\nheader_timeout = \"500ms\"\nidle_timeout = \"24h\"\ntcp_keepalive = \"1h\"\n\
         connect_timeout = \"1ms\"\nconnections = 1\nstreams = 1000\ntunnels = 1048576\ntunnel_lifetime = \"12h\"\n\
         drain_timeout = \"0s\"",
    )
    .limits;
    assert_eq!(limits.header_bytes, 1024);
    assert_eq!(limits.header_time, Duration::from_millis(500));
    assert_eq!(limits.idle, Duration::from_secs(86_400));
    assert_eq!(limits.tcp_keepalive, Some(Duration::from_secs(3_600)));
    assert_eq!(good("limits.tcp_keepalive = \"0s\"").limits.tcp_keepalive, None);
    assert_eq!(limits.connect_time, Duration::from_millis(1));
    assert_eq!((limits.connections, limits.streams, limits.tunnels), (1, 1000, 1_048_576));
    assert_eq!(limits.tunnel_lifetime, Some(Duration::from_secs(43_200)));
    assert_eq!(good("limits.tunnel_lifetime = \"0s\"").limits.tunnel_lifetime, None);
    assert_eq!(limits.drain_time, Duration::ZERO);
    assert_eq!(
        problems(
            "[limits]\nheader_bytes = 1023\nheader_timeout = \"0s\"\nidle_timeout = \"25h\"\nconnect_timeout = 10\n\
             connections = 0\nstreams = 1001\ntunnels = 1048577\ntunnel_lifetime = \"25h\"\n\
             drain_timeout = \"86401s\"\ntcp_keepalive = \"61m\""
        ),
        [
            "2:16 E0006 `limits.header_bytes` is 1023, outside 1024 to 1048576",
            "3:18 E0006 `limits.header_timeout` is 0s, outside 1ms to 24h",
            "4:16 E0006 `limits.idle_timeout` is 25h, outside 1ms to 24h",
            "5:19 E0004 `limits.connect_timeout`: expected a duration, found an integer",
            "6:15 E0006 `limits.connections` is 0, outside 1 to 1048576",
            "7:11 E0006 `limits.streams` is 1001, outside 1 to 1000",
            "8:11 E0006 `limits.tunnels` is 1048577, outside 1 to 1048576",
            "9:19 E0006 `limits.tunnel_lifetime` is 25h, outside 0s to 24h",
            "10:17 E0006 `limits.drain_timeout` is 86401s, outside 0s to 24h",
            "11:17 E0006 `limits.tcp_keepalive` is 61m, outside 0s to 1h",
        ]
    );
    assert_eq!(help("limits.idle_timeout = 10"), "write the number with its unit, such as \"10s\"");
    assert_eq!(
        problems("limits.idle_timeout = true"),
        ["1:23 E0004 `limits.idle_timeout`: expected a string, found a boolean"]
    );
}
