//! Overrides over the file.

use super::*;

fn read(text: &str, overrides: &[&str]) -> (Option<Config>, Vec<Diagnostic>) {
    let overrides: Vec<_> = overrides.iter().map(|&text| text.to_owned()).collect();
    Config::read_with(Some(&Source::new("etc/exeat.toml", text)), &overrides)
}

fn config(text: &str, overrides: &[&str]) -> Config {
    let (config, problems) = read(text, overrides);
    assert_eq!(lines(&problems), [""; 0]);
    config.unwrap()
}

fn shown(problems: &[Diagnostic]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn an_override_replaces_its_key_and_nothing_else() {
    let text = "[limits]\nidle_timeout = \"1m\"\ntunnels = 7\n[admin]\nlisten = \"127.0.0.1:1\"";
    let config = config(text, &["limits.idle_timeout=2m", "admin.listen=off", "intercept.enabled=false"]);
    assert_eq!((config.limits.idle, config.limits.tunnels), (Duration::from_secs(120), 7));
    assert_eq!(config.admin.listen, None);
    assert!(!config.intercept.enabled);
}

#[test]
fn the_later_override_holds() {
    assert_eq!(config("", &["limits.tunnels=1", "limits.tunnels=2"]).limits.tunnels, 2);
}

#[test]
fn overrides_need_no_file() {
    let (config, problems) = Config::read_with(None, &["listen.proxy=127.0.0.1:0".to_owned()]);
    assert!(problems.is_empty());
    assert_eq!(config.unwrap().listen.proxy.port(), 0);
}

#[test]
fn lists_are_replaced_and_names_are_merged() {
    let text = "\
policy.manifests = [\"a.toml\"]
guard.blocked_ports = [1]
dns.hosts = { a = \"::1\", b = \"::1\" }
bindings = { A = { env = \"A\" }, B = { file = \"b\" } }
inject = [{ url = \"https://a.example/\", headers = { X = \"1\" } }]
";
    let overridden = config(
        text,
        &[
            "policy.manifests=[\"b.toml\"]",
            "guard.blocked_ports=[2, 3]",
            "dns.hosts.B=::2",
            "bindings.A={ file = \"a\" }",
            "inject=[]",
        ],
    );
    // A path on the command line starts at the working folder, one in the file at the file's.
    assert_eq!(overridden.policy.manifests, [PathBuf::from("b.toml")]);
    assert_eq!(overridden.bindings["A"], Binding::Stored(SecretSource::File(PathBuf::from("a"))));
    assert_eq!(overridden.bindings["B"], Binding::Stored(SecretSource::File(PathBuf::from("etc/b"))));
    assert_eq!(overridden.guard.blocked_ports, [2, 3]);
    assert_eq!(overridden.dns.hosts["a"], ["::1".parse::<IpAddr>().unwrap()]);
    assert_eq!(overridden.dns.hosts["b"], ["::2".parse::<IpAddr>().unwrap()]);
    assert!(overridden.inject.is_empty());
    assert_eq!(config(text, &[]).inject.len(), 1);
}

#[test]
fn an_entry_of_the_catalog_keeps_what_is_not_overridden() {
    let text = "[catalog.linear]\nurl = \"https://a.example/mcp\"\nauth_mode = \"oauth\"\nheaders = { X-Team = \"t\" }";
    let changed = config(text, &["catalog.linear.url=https://b.example/mcp"]);
    let entry = &changed.catalog["linear"];
    assert_eq!((entry.url.value.as_str(), entry.auth_mode), ("https://b.example/mcp", Some(AuthMode::OAuth)));
    assert_eq!(entry.headers, [literal("x-team", "t")]);
    assert_eq!(&**entry.source.name(), "--set catalog.linear.url");
    let changed = config(text, &["catalog.linear.auth_mode=none", "catalog.linear.headers={}"]);
    let entry = &changed.catalog["linear"];
    assert_eq!((entry.url.value.as_str(), entry.auth_mode), ("https://a.example/mcp", Some(AuthMode::None)));
    assert!(entry.headers.is_empty());
    assert_eq!(&**entry.source.name(), "etc/exeat.toml");
}

#[test]
fn the_halves_of_a_ca_may_stand_in_two_layers() {
    let ca = config("intercept.ca_cert = \"c\"", &["intercept.ca_key=k"]).intercept.ca;
    assert_eq!(ca, Some(CaFiles { cert: PathBuf::from("etc/c"), key: PathBuf::from("k") }));
    let (none, problems) = read("", &["intercept.ca_key=k"]);
    assert!(none.is_none());
    assert_eq!(
        shown(&problems),
        ["--set intercept.ca_key:1:11: error[E0303]: `intercept.ca_key` is written without `intercept.ca_cert`"]
    );
}

#[test]
fn problems_name_the_layer_they_are_in() {
    let (none, problems) = read("limits.tunnels = 0\n", &["limits.tunels=5", "limits.idle_timeout = 5", "nonsense"]);
    assert!(none.is_none());
    assert_eq!(
        shown(&problems),
        [
            "etc/exeat.toml:1:18: error[E0006]: `limits.tunnels` is 0, outside 1 to 1048576",
            "--set limits.tunels:1:8: error[E0003]: unknown key `tunels` in `limits`",
            "--set limits.idle_timeout:1:23: error[E0004]: `limits.idle_timeout`: expected a duration, found an integer",
            "--set:1:1: error[E0304]: expected `section.key=value`, found no `=`",
        ]
    );
}
