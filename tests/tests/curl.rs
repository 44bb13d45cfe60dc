//! curl's own behaviours, as far as they meet a proxy: what it retries, resumes, waits for and gives up. What it gets
//! past interception, authentication and the ways in stands in the suites of those.

use exeat_tests::bulk::{Content, sha256};
use exeat_tests::client::curl;
use exeat_tests::prelude::*;
use tempfile::TempDir;

const HOST: &str = "api.example.test";

/// A plain origin and one over TLS, behind a gateway that judges both by path.
async fn scene(site: Site, change: impl FnOnce(Setup) -> Setup) -> ([Origin; 2], Gateway) {
    let ca = TestCa::new();
    let origins = [Origin::http(site.clone()).await, Origin::https(site, &ca.leaf(&[HOST])).await];
    let rules = [origins[0].url(HOST, "/v1/"), origins[1].url(HOST, "/v1/")];
    let gateway = change(Gateway::setup().names(&[HOST]).trust(&ca).allow(&rules)).start().await;
    (origins, gateway)
}

/// A page that can be asked for in part (RFC 9110 section 14).
fn page() -> Reply {
    const TEXT: &str = "0123456789abcdefghij";
    Reply::computed(|request| async move {
        let range = request.value("range").unwrap_or_default();
        let bounds = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
        let Some((first, last)) = bounds else { return Reply::text(TEXT).header("Accept-Ranges", "bytes") };
        let first: usize = first.parse().unwrap();
        let last: usize = last.parse().unwrap_or(TEXT.len() - 1);
        let reply = Reply::text(&TEXT[first..=last]).with_status(206);
        reply.header("Content-Range", &format!("bytes {first}-{last}/{}", TEXT.len()))
    })
}

#[tokio::test]
async fn a_head_request_and_ranges_and_a_resumed_download_are_answered() {
    let (origins, gateway) = scene(Site::default().at("/v1/page", page()), |setup| setup).await;
    for origin in &origins {
        let url = origin.url(HOST, "/v1/page");
        let head = curl(&gateway, &["-I", &url]).run().await.success().to_lowercase();
        assert!(head.contains("content-length: 20\r\n") && head.ends_with("\r\n\r\n\n200"), "{head}");
        assert_eq!(curl(&gateway, &["-r", "5-9", &url]).run().await.success(), "56789\n206");
        let folder = TempDir::new().unwrap();
        let part = folder.path().join("part");
        std::fs::write(&part, "01234").unwrap();
        let resume = curl(&gateway, &["-C", "-", "-o", part.to_str().unwrap(), &url]).run().await;
        assert_eq!(resume.success(), "\n206");
        assert_eq!(std::fs::read_to_string(&part).unwrap(), "0123456789abcdefghij");
    }
}

#[tokio::test]
async fn an_upload_that_is_waited_for_arrives_and_one_that_is_refused_is_not_sent() {
    let (origins, gateway) = scene(Site::default(), |setup| setup).await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("upload");
    let mut made = Content::default();
    let content = [made.more().to_vec(), made.more().to_vec(), made.more()[..4321].to_vec()].concat();
    let digest = sha256(content.len() as u64);
    std::fs::write(&file, &content).unwrap();
    for origin in &origins {
        // Chunked where the length is not known.
        for source in [file.to_str().unwrap(), "-"] {
            // Over HTTP/2 curl waits for nobody.
            let args = ["--http1.1", "-T", source, "-H", "Expect: 100-continue", "--expect100-timeout", "60"];
            let args = [&args[..], &["-w", "\n%{http_code} %{size_upload}"]].concat();
            let put = async |path: &str| {
                let url = origin.url(HOST, path);
                curl(&gateway, &[&args[..], &[&url]].concat()).input(content.clone()).run().await.success()
            };
            let uploaded = put("/v1/upload").await;
            assert!(uploaded.contains("\n200 "), "{uploaded}");
            let request = origin.requests().pop().unwrap();
            assert_eq!((request.method.as_str(), &request.body_sha256), ("PUT", &digest));
            let refused = put("/v2/upload").await;
            assert!(refused.ends_with("\n403 0"), "a refused upload is sent: {refused}");
        }
    }
}

#[tokio::test]
async fn trailers_are_seen() {
    let reply = Reply::chunked(&["a", "b"]).header("Trailer", "X-Sum").trailer("X-Sum", "7");
    let (origins, gateway) = scene(Site::default().at("/v1/sum", reply), |setup| setup).await;
    for origin in &origins {
        let output = curl(&gateway, &["-D", "-", &origin.url(HOST, "/v1/sum")]).run().await.success();
        assert!(output.to_lowercase().contains("x-sum: 7\r\n") && output.contains("ab"), "{output}");
    }
}

#[tokio::test]
async fn connections_are_kept_between_urls_and_redirects_are_judged() {
    let site = Site::default().at("/v1/out", Reply::redirect("http://outside.test/"));
    let (origins, gateway) = scene(site.at("/v1/on", Reply::redirect("/v1/there")), |setup| setup).await;
    for origin in &origins {
        let [a, b, on, out] = ["/v1/a", "/v1/b", "/v1/on", "/v1/out"].map(|path| origin.url(HOST, path));
        let connects = ["-w", "%{num_connects}\n"];
        let output = curl(&gateway, &[&connects[..], &[&a, &b]].concat()).run().await.success();
        let count: Vec<_> = output.lines().filter(|line| !line.starts_with("GET")).collect();
        assert_eq!(count.last(), Some(&"0"), "{output}");
        assert_eq!(curl(&gateway, &["-L", &on]).run().await.success(), "GET /v1/there\n\n200");
        assert!(curl(&gateway, &["-L", &out]).run().await.success().ends_with("403"));
        let many = curl(&gateway, &["-Z", &a, &b, &a, &b]).run().await.success();
        assert_eq!(many.matches("\n200").count(), 4, "{many}");
    }
}

#[tokio::test]
async fn versions_older_than_1_1_are_served() {
    let (origins, gateway) = scene(Site::default(), |setup| setup).await;
    let proxy = format!("http://{}", gateway.proxy());
    for origin in &origins {
        let url = origin.url(HOST, "/v1/x");
        for args in [&["--http1.0"][..], &["--proxy1.0", &proxy], &["--proxy1.0", &proxy, "--proxytunnel", "--http1.0"]]
        {
            let output = curl(&gateway, &[args, &[&url]].concat()).run().await.success();
            assert_eq!(output, "GET /v1/x\n\n200", "{args:?} {url}");
        }
    }
}

#[tokio::test]
async fn a_password_is_asked_for_on_the_same_socket_and_given_to_no_scheme_that_is_not_offered() {
    let (origins, gateway) = scene(Site::default(), |setup| setup.user("alice", "secret")).await;
    for origin in &origins {
        let url = origin.url(HOST, "/v1/x");
        let run = async |how: &str| {
            let format = "\n%{http_code} %{http_connect} %{num_connects}";
            let output = curl(&gateway, &[how, "--proxy-user", "alice:secret", "-w", format, &url]).run().await;
            output.stdout.lines().last().unwrap().to_owned()
        };
        let (plain, tunnelled) = (url.starts_with("http:"), url.starts_with("https:"));
        let kept = run("--proxy-anyauth").await;
        assert!(kept == "200 000 1" && plain || kept == "200 200 1" && tunnelled, "{kept}");
        for scheme in ["--proxy-digest", "--proxy-ntlm"] {
            let refused = run(scheme).await;
            assert!(
                refused.starts_with("407 000") && plain || refused.starts_with("000 407") && tunnelled,
                "{refused}"
            );
        }
        assert_eq!(origin.requests().len(), 1, "only what was let in arrives");
    }
}

#[tokio::test]
async fn socks5_names_are_resolved_on_either_side_with_a_password_and_over_a_unix_socket() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("proxy.sock");
    let listen = format!("{:?}", socket.to_str().unwrap());
    let setup = |setup: Setup| setup.user("alice", "secret").set("listen", "unix", &listen).allow(&["127.0.0.1"]);
    let (origins, gateway) = scene(Site::default(), setup).await;
    let proxy = gateway.proxy();
    for origin in &origins {
        let url = origin.url(HOST, "/v1/x");
        let here = format!("{HOST}:{}:127.0.0.1", origin.port());
        let get = async |how: &[&str]| curl(&gateway, &[how, &[&url]].concat()).run().await;
        for proxy in [format!("alice:secret@{proxy}"), format!("alice:secret@localhost{}", socket.display())] {
            let far = format!("socks5h://{proxy}");
            assert_eq!(get(&["-x", &far]).await.success(), "GET /v1/x\n\n200", "{far} {url}");
        }
        // An address is another host to the rules, and the server name another one than that.
        let near = get(&["-x", &format!("socks5://alice:secret@{proxy}"), "--resolve", &here]).await;
        assert_eq!(near.code, Some(if url.starts_with("https:") { 35 } else { 0 }), "{near:#?}");
        for user in ["alice:wrong", "bob:secret"] {
            assert_eq!(get(&["-x", &format!("socks5h://{user}@{proxy}")]).await.code, Some(97));
        }
    }
}

#[tokio::test]
async fn a_proxy_header_names_the_client() {
    let trusting = |setup: Setup| setup.set("listen", "proxy_protocol", r#"["127.0.0.1"]"#);
    let (origins, gateway) = scene(Site::default(), trusting).await;
    let url = origins[0].url(HOST, "/v1/x");
    let output = curl(&gateway, &["--haproxy-protocol", "-w", "%{local_ip}:%{local_port}", &url]).run().await.success();
    let client = output.strip_prefix("GET /v1/x\n").unwrap();
    gateway.await_line(&format!(r#""client":"tcp {client}""#)).await;
    let bare = curl(&gateway, &[&url]).run().await;
    assert!(bare.stdout.ends_with("000"), "no answer at all: {bare:#?}");
    gateway.await_metric("exeat_requests_total", &[("reason", "proxy_header")], 1.0).await;
}
