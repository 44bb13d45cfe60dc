//! The table over HTTP/2: on the proxy port and inside an inspected tunnel.
//!
//! What a case says in HTTP/1.1 is said as a stream, field for field and byte for byte, by a connection that puts its
//! own header block in place of a library's. A case that needs other words or has another outcome says so under
//! `http2`; what no stream can say, such as a framing of HTTP/1.1, is left out. Fields that belong to a connection are
//! malformed here (RFC 9113 section 8.2.2), whatever they would do in HTTP/1.1.

use serde_json::{Value, json};

use super::{Answered, Case, run};

/// The cases that an entry point can say, as they are there.
pub(super) fn carried(entry: &str, table: &[Value]) -> Vec<Value> {
    table.iter().filter_map(|case| adapt(entry, case)).collect()
}

fn adapt(entry: &str, case: &Value) -> Option<Value> {
    let mut case = case.clone();
    let named = case["entries"].as_array().cloned();
    let names = |name: &str| named.as_ref().is_some_and(|entries| entries.contains(&json!(name)));
    if case.get("http2_fields").is_none() {
        let (first, second) = if entry == "http2" { ("absolute", "connect") } else { ("intercept", "intercept") };
        let generic = case.get("path").is_some() || (entry == "http2" && case.get("raw").is_none());
        let fits = if named.is_some() { names(first) || names(second) } else { generic };
        if !fits || case.get("raw").is_some() {
            return None;
        }
        let place = case["url"].as_str().map(|url| url.split_once("://"));
        if place.is_some_and(|place| place.is_none_or(|(_, rest)| authority_of(rest).contains('\\'))) {
            return None;
        }
    } else if !names(entry) {
        return None;
    }
    let host = case.get("host_field").is_some();
    // A percent sign in an authority is malformed for the framing, whatever it stands for.
    let place = case["url"].as_str().and_then(|url| url.split_once("://")).map(|(_, rest)| authority_of(rest));
    let encoded =
        place.or(case["authority"].as_str()).is_some_and(|place| place.contains('%')) && case["status"] != json!(400);
    let fields = case["fields"].as_str().unwrap_or_default().to_ascii_lowercase();
    let of_connection = fields.split("\r\n").any(|line| {
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.trim() {
            "te" => value.trim() != "trailers",
            name => ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"].contains(&name),
        }
    });
    let object = case.as_object_mut()?;
    if host || of_connection || encoded {
        for key in ["allow", "target", "seen", "content", "trailers", "dialled"] {
            object.remove(key);
        }
        object.insert("reason".to_owned(), json!("bad_request"));
        object.insert("status".to_owned(), json!(400));
    }
    if let Some(other) = object.remove("http2") {
        if other == json!(false) {
            return None;
        }
        if other["allow"] == json!(true) {
            object.remove("reason");
        }
        object.extend(other.as_object()?.clone());
    }
    Some(case)
}

fn authority_of(rest: &str) -> &str {
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// Bytes of a name and a value.
type Field = (Vec<u8>, Vec<u8>);

fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

/// The header block of a case; `own` is the authority of a path.
fn block(case: &Case, own: &str) -> Vec<Field> {
    if let Some(fields) = case.values["http2_fields"].as_array() {
        return fields.iter().map(|pair| field(pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect();
    }
    if let Some(authority) = case.text("authority") {
        return vec![field(":method", "CONNECT"), field(":authority", authority)];
    }
    let (scheme, authority, path) = match case.text("url") {
        None => ("https", own, case.text("path").unwrap_or("/")),
        Some(url) => {
            let (scheme, rest) = url.split_once("://").unwrap();
            let authority = authority_of(rest);
            (scheme, authority, &rest[authority.len()..])
        }
    };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut fields = vec![
        field(":method", case.method()),
        field(":scheme", scheme),
        field(":authority", authority),
        field(":path", &path),
    ];
    fields.extend(case.text("host_field").map(|host| field("host", host)));
    for line in case.text("fields").unwrap_or_default().split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        fields.push(field(&name.to_ascii_lowercase(), value.strip_prefix(' ').unwrap_or(value)));
    }
    fields
}

async fn say(conn: exeat_tests::client::RawConn, case: &Case, own: &str) -> Answered {
    let fields = block(case, own);
    let tunnel = fields[0] == field(":method", "CONNECT");
    let body = case.text("body").filter(|body| !body.is_empty()).map(str::as_bytes);
    match conn.forged_h2(&fields, body, tunnel).await {
        Ok(response) => Answered::from_response(&response),
        Err(error) if error.reason() == Some(h2::Reason::PROTOCOL_ERROR) => match Answered::expected(case) {
            // The framing has found it malformed before anybody could find a better word.
            expected @ Answered::Refused { status: 400, .. } => expected,
            _ => Answered::Refused { status: 400, reason: "bad_request".to_owned() },
        },
        Err(error) => panic!("{}: {error}", case.values["id"]),
    }
}

#[tokio::test]
async fn on_the_proxy_port() {
    run("http2", &[], async |scene, case| {
        let own = scene.tls.authority(case.host());
        say(scene.gateway.open().await, case, &own).await
    })
    .await;
}

#[tokio::test]
async fn inside_an_inspected_tunnel() {
    run("http2_intercept", &[], async |scene, case| {
        let own = scene.tls.authority(case.host());
        let name = case.text("sni").unwrap_or_else(|| case.host());
        let tunnel = scene.gateway.tunnel(&own).await.tls_unchecked_with(name, &["h2"]).await;
        say(tunnel.expect("TLS of the gateway's own"), case, &own).await
    })
    .await;
}
