//! What ships for operators: each file is read by the program that it is for, and starts the gateway that it says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use exeat_tests::gateway::{binary, exeat};
use exeat_tests::peers::{Prometheus, python, script};
use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const HOST: &str = "mcp.example.test";
const SECRET: &str = "Bearer canary-5ecret";

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of `config/deploy`.
fn shipped(path: &str) -> String {
    std::fs::read_to_string(root().join("config/deploy").join(path)).unwrap()
}

// --- Prometheus and Grafana -----------------------------------------------------------------------------------------

/// The shipped config of Prometheus and its rules, in a folder, with another target and in a hurry.
fn prometheus_files(target: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let config = shipped("prometheus/prometheus.yml");
    let hurried = config
        .replace("scrape_interval: 15s", "scrape_interval: 250ms")
        .replace("evaluation_interval: 15s", "evaluation_interval: 250ms")
        .replace("127.0.0.1:9180", target);
    assert!(hurried.contains("250ms") && hurried.contains(target), "{hurried}");
    for (name, text) in [
        ("prometheus.yml", hurried),
        ("exeat.rules.yml", shipped("prometheus/exeat.rules.yml")),
        ("exeat.rules.test.yml", shipped("prometheus/exeat.rules.test.yml")),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[tokio::test]
async fn each_alert_is_raised_by_its_example_and_by_nothing_less() {
    let dir = prometheus_files("127.0.0.1:9180");
    Prometheus::tool().args(["check", "config", "prometheus.yml"]).dir(dir.path()).run().await.success();
    Prometheus::tool().args(["test", "rules", "exeat.rules.test.yml"]).dir(dir.path()).run().await.success();
    let named = |text: &str, key: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
        lines.map(|name| name.trim().to_owned()).collect()
    };
    let alerts = named(&shipped("prometheus/exeat.rules.yml"), "alert:");
    assert!(alerts.len() >= 16, "{alerts:?}");
    assert_eq!(named(&shipped("prometheus/exeat.rules.test.yml"), "alertname:"), alerts);
    let page = std::fs::read_to_string(root().join("docs/operate.md")).unwrap();
    for alert in &alerts {
        assert!(page.contains(&format!("`{alert}`")), "docs/operate.md does not say what to do about {alert}");
    }
    // An expression that is always true has no example in which it is quiet.
    let rules = shipped("prometheus/exeat.rules.yml").replace("exeat_ready == 0", "exeat_ready >= 0");
    std::fs::write(dir.path().join("exeat.rules.yml"), rules).unwrap();
    Prometheus::tool().args(["test", "rules", "exeat.rules.test.yml"]).dir(dir.path()).run().await.failure();
}

/// A server that speaks the newest MCP to whoever has the credential, and sends it back.
fn server() -> Site {
    let reply = Reply::computed(|request| async move {
        let authorization = request.value("authorization").unwrap_or_default();
        if authorization != SECRET {
            return Reply::status(401);
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => json!({ "supportedVersions": ["2026-07-28"] }),
            "tools/list" => json!({ "tools": [{ "name": "search" }] }),
            _ => return Reply::status(404),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    });
    Site::default().at("/mcp", reply)
}

/// The selectors of an expression: `name{labels}`, without a comparison that may leave nothing of them.
fn selectors(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let starts = expression.match_indices("exeat_").chain(expression.match_indices("up{"));
    for (at, _) in starts {
        let before = expression[..at].chars().next_back();
        if before.is_some_and(|char| char.is_ascii_alphanumeric() || char == '_' || char == '"') {
            continue;
        }
        let rest = &expression[at..];
        let name = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(rest.len());
        let end = if rest[name..].starts_with('{') { rest.find('}').unwrap() + 1 } else { name };
        found.insert(rest[..end].to_owned());
    }
    found
}

#[test]
fn selectors_are_found_in_expressions() {
    let found = selectors(r#"sum by (exeat) (rate(exeat_a{x="exeat_b"}[5m])) / exeat_c > 0 and up{job="exeat"} == 0"#);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [r#"exeat_a{x="exeat_b"}"#, "exeat_c", r#"up{job="exeat"}"#]);
}

/// Every expression of a dashboard: of its panels, variables and annotations, with what Grafana would put in.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let filled = |text: &str| {
        let text = text.replace("$__rate_interval", "30s").replace("$__interval", "30s");
        text.replace("$job", "exeat").replace("$instance", ".*")
    };
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((panel["title"].to_string(), filled(target["expr"].as_str().unwrap())));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["definition"].as_str() else { continue };
        let inner = query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')')).unwrap();
        let (series, label) = inner.rsplit_once(", ").unwrap();
        found.push((variable["name"].to_string(), filled(&format!("count by ({label}) ({series})"))));
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        found.push((annotation["name"].to_string(), filled(annotation["expr"].as_str().unwrap())));
    }
    found
}

#[tokio::test]
async fn a_real_prometheus_finds_every_series_that_alerts_and_dashboard_ask_for() {
    let ca = TestCa::new();
    let origin = Origin::https(server(), &ca.leaf(&[HOST, "echo.test"])).await;
    let echo = Site::default().at(
        "/",
        Reply::computed(|request| async move { Reply::text(&request.value("authorization").unwrap_or_default()) }),
    );
    let echo = Origin::https(echo, &ca.leaf(&["echo.test"])).await;
    let gone = Origin::http(Site::default()).await.url("gone.test", "/mcp");
    let gateway = Gateway::setup().names(&[HOST, "echo.test", "gone.test"]).trust(&ca);
    let gateway = gateway.allow(&[HOST, "echo.test", "gone.test"]).block(&["https://echo.test/never/"]);
    let gateway = gateway.mcp_server("docs", &origin.url(HOST, "/mcp"), &[("Authorization", "${MINTED}")]);
    let gateway = gateway.mcp_server("gone", &gone, &[]).set("admin", "readiness_interval", "\"1h\"");
    let gateway = gateway.inject(&echo.url("echo.test", "/"), &[("Authorization", "${MINTED}")]);
    let minted = format!("{{ command = [\"echo\", {SECRET:?}], ttl = \"10m\" }}");
    let gateway = gateway.set("bindings", "MINTED", &minted).start().await;
    gateway.await_metric("exeat_capability_status", &[("capability", "mcp:docs"), ("status", "ready")], 1.0).await;
    gateway
        .await_metric("exeat_capability_status", &[("capability", "mcp:gone"), ("status", "unavailable")], 1.0)
        .await;

    let dir = prometheus_files(&gateway.admin().to_string());
    let prometheus = Prometheus::start(&dir.path().join("prometheus.yml")).await;
    until("Prometheus to scrape", || async { (!prometheus.query("exeat_ready == 1").await.is_empty()).then_some(()) })
        .await;
    // Some of each: permitted with a credential, refused, not served, a tunnel, a reload that works and one that fails.
    gateway.intercepted(&echo.authority("echo.test")).await.get("/", "echo.test").await.assert_ok("*");
    gateway.get("http://elsewhere.test/").await.assert_refused(403, "not_allowed");
    assert_eq!(gateway.get(&gone).await.status, 502);
    gateway.reload().await;
    let manifest = std::fs::read_to_string(gateway.dir().join("agent.toml")).unwrap();
    gateway.write("agent.toml", "name = 1");
    gateway.reload().await;
    gateway.write("agent.toml", &manifest);

    let dashboard: Value = serde_json::from_str(&shipped("grafana/exeat.json")).unwrap();
    let asked = expressions(&dashboard);
    assert!(asked.len() > 30, "{}", asked.len());
    for (panel, expression) in asked {
        let what = format!("a series for {panel}: {expression}");
        until(&what, || async { (!prometheus.query(&expression).await.is_empty()).then_some(()) }).await;
    }
    let rules = prometheus.rules().await;
    assert!(rules.len() >= 16, "{rules:#?}");
    for rule in &rules {
        assert_eq!((&rule["health"], &rule["lastError"]), (&"ok".into(), &Value::Null), "{rule:#}");
        let found = selectors(rule["query"].as_str().unwrap());
        assert!(!found.is_empty(), "{rule:#}");
        for selector in found {
            // The one value that a gateway that enforces its policy does not have.
            let selector = selector.replace("mode=\"report\"", "mode=\"enforce\"");
            assert!(!prometheus.query(&selector).await.is_empty(), "{}: {selector}", rule["name"]);
        }
    }
    until("the alert about the reload", || async {
        let rules = prometheus.rules().await;
        let firing = |rule: &Value| rule["name"] == "ExeatReloadFailed" && rule["state"] == "firing";
        rules.iter().any(firing).then_some(())
    })
    .await;
}

#[test]
fn the_panels_of_the_dashboard_have_places_of_their_own() {
    let dashboard: Value = serde_json::from_str(&shipped("grafana/exeat.json")).unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel:#}");
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{panel:#}");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
            }
        }
    }
}

// --- Ways to run it ---------------------------------------------------------------------------------------------------

/// A gateway that was started with the arguments of a shipped file, whose absolute paths lie below a folder instead.
struct Started {
    _child: Child,
    admin: std::net::SocketAddr,
}

/// Starts `exeat` with `args`, on free ports.
async fn start(args: &[String], below: &Path) -> Started {
    assert_eq!(args[0], "serve", "{args:?}");
    let ready = below.join("ready.json");
    let mut command = Command::new(binary());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--listen" => drop(args.next()),
            path if path.starts_with('/') => drop(command.arg(below.join(path.trim_start_matches('/')))),
            other => drop(command.arg(other)),
        }
    }
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ready-file"]).arg(&ready);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let ready: Value = until("the gateway to be ready", || {
        assert!(child.try_wait().unwrap().is_none(), "{args:?}: the gateway ended");
        let read = std::fs::read(&ready).ok().and_then(|text| serde_json::from_slice(&text).ok());
        async move { read }
    })
    .await;
    Started { _child: child, admin: ready["admin"].as_str().unwrap().parse().unwrap() }
}

impl Started {
    async fn get(&self, path: &str) -> Response {
        RawConn::open(self.admin).await.get(path, &self.admin.to_string()).await
    }
}

/// Writes the shipped config and example manifest where packages and images have them.
fn etc(below: &Path) {
    std::fs::create_dir_all(below.join("etc/exeat")).unwrap();
    for name in ["exeat.toml", "agent.toml"] {
        std::fs::copy(root().join("config").join(name), below.join("etc/exeat").join(name)).unwrap();
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_unit_is_valid_confined_and_starts_a_gateway() {
    let dir = TempDir::new().unwrap();
    let unit = shipped("systemd/exeat.service");
    let local = unit.replace("/usr/bin/exeat", binary().to_str().unwrap());
    assert_ne!(local, unit);
    std::fs::write(dir.path().join("exeat.service"), local).unwrap();
    let analyze = |args: &[&str]| Cmd::new("systemd-analyze").args(args).arg("./exeat.service").dir(dir.path());
    let output = analyze(&["--man=no", "--recursive-errors=no", "verify"]).run().await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    // An exposure of 2.0 of 10 at most; what is left is what a gateway is for: sockets.
    analyze(&["--no-pager", "--offline=true", "--threshold=20", "security"]).run().await.success();

    etc(dir.path());
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/exeat ")).unwrap();
    assert_eq!(start(&words(command), dir.path()).await.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn the_image_is_made_of_what_there_is_and_starts_a_gateway() {
    let text = shipped("container/Containerfile").replace("\\\n", " ");
    let copied: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("COPY ")).collect();
    let of_context = copied.iter().filter(|line| !line.starts_with("--from="));
    let sources: BTreeSet<&str> = of_context.flat_map(|line| line.rsplit_once(' ').unwrap().0.split(' ')).collect();
    let ignored = shipped("container/Containerfile.dockerignore");
    for source in &sources {
        assert!(root().join(source).exists(), "{source}");
        assert!(ignored.lines().any(|line| line == format!("!{source}")), "{source} is left out of the context");
    }
    // What the program is built from beside its own sources.
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let members = members.trim_matches(['[', ']']).split(", ").map(|member| member.trim_matches('"').to_owned());
    let included = included_folders(&root().join("proxy/src"));
    assert!(included.contains("config"), "{included:?}");
    for folder in members.chain(included) {
        assert!(sources.contains(folder.as_str()), "{folder} is not copied");
    }
    let command = text.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let command: Vec<String> = serde_json::from_str(command).unwrap();
    let dir = TempDir::new().unwrap();
    etc(dir.path());
    assert_eq!(start(&command, dir.path()).await.get("/readyz").await.status, 200);
    assert!(text.contains("\nUSER 65532:65532\n"));
}

/// The folders at the root that sources include files of.
fn included_folders(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(included_folders(&entry.path()));
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap();
        for (_, rest) in text.match_indices("include_str!(\"").map(|(at, start)| text.split_at(at + start.len())) {
            let path = entry.path().parent().unwrap().join(rest.split('"').next().unwrap()).canonicalize().unwrap();
            let path = path.strip_prefix(root().canonicalize().unwrap()).unwrap();
            found.insert(path.iter().next().unwrap().to_str().unwrap().to_owned());
        }
    }
    found.remove("proxy");
    found
}

/// The documents of the manifests, valid by the schemas of two versions of Kubernetes.
async fn kubernetes(file: &str) -> Vec<Value> {
    let path = root().join("config/deploy/kubernetes").join(file);
    let mut documents = Value::Null;
    for version in ["1.30", "1.37"] {
        let check = Cmd::new(python()).arg(script("kubernetes.py")).arg(version).arg(&path);
        documents = serde_json::from_str(&check.run().await.success()).unwrap();
    }
    documents.as_array().unwrap().clone()
}

/// The pods that documents describe.
fn pods(documents: &[Value]) -> Vec<&Value> {
    let spec = |document: &'_ Value| match document["kind"].as_str().unwrap() {
        "Pod" => Some("/spec"),
        "Deployment" => Some("/spec/template/spec"),
        _ => None,
    };
    documents.iter().filter_map(|document| document.pointer(spec(document)?)).collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().flat_map(|key| pod[key].as_array().into_iter().flatten())
}

#[tokio::test]
async fn a_misspelt_field_of_a_manifest_is_noticed() {
    let dir = TempDir::new().unwrap();
    let text = shipped("kubernetes/standalone.yaml").replace("readOnlyRootFilesystem", "readonlyRootFilesystem");
    std::fs::write(dir.path().join("x.yaml"), text).unwrap();
    let check = Cmd::new(python()).arg(script("kubernetes.py")).arg("1.37").arg(dir.path().join("x.yaml"));
    let said = check.run().await.failure();
    assert!(said.contains("readonlyRootFilesystem"), "{said}");
}

#[tokio::test]
async fn the_pods_are_restricted_and_the_agent_sees_no_secret() {
    for file in ["standalone.yaml", "sidecar.yaml"] {
        let documents = kubernetes(file).await;
        assert!(documents.iter().any(|document| document["kind"] == "NetworkPolicy"), "{file}");
        for pod in pods(&documents) {
            assert_eq!(pod["automountServiceAccountToken"], false, "{file}");
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{file}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{file}");
            let volumes = pod["volumes"].as_array().unwrap();
            let secret = |name: &Value| {
                let volume = volumes.iter().find(|volume| &volume["name"] == name).expect("a volume");
                volume.get("secret").is_some() || name == "state"
            };
            for container in containers(pod) {
                let context = &container["securityContext"];
                let name = &container["name"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{file}: {name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{file}: {name}");
                assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }), "{file}: {name}");
                assert!(container["resources"]["limits"]["memory"].is_string(), "{file}: {name}");
                let mounts = container["volumeMounts"].as_array().unwrap();
                if name == "agent" {
                    let user = |context: &Value| context["securityContext"]["runAsUser"].clone();
                    let own = if user(container).is_null() { user(pod) } else { user(container) };
                    assert!(own != 65532, "{file}: the agent is to be another user than the gateway");
                    assert!(!mounts.iter().any(|mount| secret(&mount["name"])), "{file}: {mounts:#?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_manifests_of_kubernetes_start_gateways_that_pass_their_probes() {
    for file in ["standalone.yaml", "sidecar.yaml"] {
        let documents = kubernetes(file).await;
        let dir = TempDir::new().unwrap();
        let below = dir.path().to_str().unwrap();
        std::fs::create_dir_all(dir.path().join("etc/exeat")).unwrap();
        std::fs::create_dir_all(dir.path().join("etc/exeat-ca")).unwrap();
        let config = documents.iter().find(|document| document["kind"] == "ConfigMap").unwrap();
        for (name, text) in config["data"].as_object().unwrap() {
            let text = text.as_str().unwrap().replace("/var/run/", &format!("{below}/var/run/"));
            std::fs::write(dir.path().join("etc/exeat").join(name), text).unwrap();
        }
        let admin = dir.path().join("var/run/secrets/exeat/admin");
        std::fs::create_dir_all(&admin).unwrap();
        std::fs::write(admin.join("token"), "0123456789abcdef0123456789abcdef").unwrap();
        if file == "standalone.yaml" {
            make_ca(&shipped("kubernetes/standalone.yaml"), &dir.path().join("var/run/secrets/exeat/ca")).await;
        }
        let (manifest, settings) = (dir.path().join("etc/exeat/agent.toml"), dir.path().join("etc/exeat/exeat.toml"));
        exeat(&["lint", "-c"]).arg(settings).arg(manifest).run().await.success();
        let gateways: Vec<&Value> = pods(&documents).into_iter().flat_map(containers).collect();
        for container in gateways.iter().filter(|container| container["image"] == "exeat:0.1.0") {
            let args = container["args"].as_array().unwrap().iter();
            let args: Vec<String> = args.map(|arg| arg.as_str().unwrap().to_owned()).collect();
            if args[0] != "serve" {
                let placed = args.iter().map(|arg| match arg.strip_prefix('/') {
                    Some(path) => dir.path().join(path).to_str().unwrap().to_owned(),
                    None => arg.clone(),
                });
                exeat(&[]).args(placed.collect::<Vec<_>>()).run().await.success();
                let bundle = std::fs::read_to_string(dir.path().join("etc/exeat-ca/bundle.pem")).unwrap();
                assert!(bundle.contains("BEGIN CERTIFICATE"));
                continue;
            }
            let gateway = start(&args, dir.path()).await;
            for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
                let path = container[probe]["httpGet"]["path"].as_str().unwrap();
                assert_eq!(gateway.get(path).await.status, 200, "{file}: {probe}");
            }
        }
    }
}

/// Makes the CA by the command that stands at the head of the manifest.
async fn make_ca(text: &str, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let lines = text.lines().skip_while(|line| !line.contains("openssl req"));
    let upto = lines.scan(true, |more, line| {
        let line = line.trim_start_matches('#').trim();
        std::mem::replace(more, line.ends_with('\\')).then(|| line.trim_end_matches('\\'))
    });
    let command = upto.collect::<Vec<_>>().join(" ");
    Cmd::new("sh").args(["-c", &command]).dir(folder).run().await.success();
}
