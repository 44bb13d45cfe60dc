//! Envoy: one worker, a virtual host with the permitted names, an access log in a file.
//!
//! It is a forward proxy by its dynamic forward proxy, and ends tunnels itself. TLS it opens on a port of its own, with
//! one certificate, in front of the one server it is told of: it cannot open what it finds in a tunnel. So its clients
//! begin with TLS and save the CONNECT that those of other proxies need.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::{HOST, Job, Peer, Task};

const TYPES: &str = "type.googleapis.com/envoy.extensions";
/// Above the 1,024 connections that Envoy has of its own accord.
const MANY: u32 = 100_000;

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    let config = json!({
        "static_resources": {
            "listeners": [listener(task)],
            "clusters": [if task.job.opens_tls() { origin(task) } else { anywhere() }],
        }
    });
    let config = task.write("envoy.json", &config.to_string())?;
    let flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"].map(OsString::from);
    Ok(flags.into_iter().chain([config.into()]).collect())
}

fn typed(name: &str, mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.insert("@type".to_owned(), format!("{TYPES}.{name}").into());
    }
    fields
}

fn listener(task: &Task<'_>) -> Value {
    let hosts: Vec<String> = task.hosts(HOST).chain(Peer::Envoy.dialled().map(str::to_owned)).collect();
    let mut filters = Vec::new();
    if !task.job.opens_tls() {
        let cache = json!({ "dns_cache_config": names() });
        let config = typed("filters.http.dynamic_forward_proxy.v3.FilterConfig", cache);
        filters.push(json!({ "name": "envoy.filters.http.dynamic_forward_proxy", "typed_config": config }));
    }
    let router = typed("filters.http.router.v3.Router", json!({}));
    filters.push(json!({ "name": "envoy.filters.http.router", "typed_config": router }));
    let log = typed("access_loggers.file.v3.FileAccessLog", json!({ "path": task.dir.join("access.log") }));
    let manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": "proxy",
            "access_log": [{ "name": "envoy.access_loggers.file", "typed_config": log }],
            "upgrade_configs": [{ "upgrade_type": "CONNECT" }],
            "http_filters": filters,
            "route_config": {
                "ignore_port_in_host_matching": true,
                "virtual_hosts": [{ "name": "allowed", "domains": hosts, "routes": routes(task.job) }],
            },
        }),
    );
    let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager });
    let mut chain = json!({ "filters": [filter] });
    if let (true, Some(chain)) = (task.job.opens_tls(), chain.as_object_mut()) {
        chain.insert("transport_socket".to_owned(), downstream(task));
    }
    json!({ "name": "proxy", "address": address(task.listen), "filter_chains": [chain] })
}

fn routes(job: Job) -> Value {
    if job.opens_tls() {
        return json!([{ "match": { "prefix": "/served/" }, "route": { "cluster": "origin", "timeout": "0s" } }]);
    }
    let ends = json!([{ "upgrade_type": "CONNECT", "connect_config": {} }]);
    json!([
        {
            "match": { "connect_matcher": {} },
            "route": { "cluster": "origin", "timeout": "0s", "upgrade_configs": ends },
        },
        { "match": { "prefix": "/" }, "route": { "cluster": "origin", "timeout": "0s" } },
    ])
}

fn downstream(task: &Task<'_>) -> Value {
    let [chain, key] = task.authorities.proxy.leaf(&[HOST]).write_pem(task.dir);
    let tls = json!({
        "common_tls_context": {
            "tls_certificates": [{ "certificate_chain": { "filename": chain }, "private_key": { "filename": key } }],
            "alpn_protocols": ["h2", "http/1.1"],
        }
    });
    let tls = typed("transport_sockets.tls.v3.DownstreamTlsContext", tls);
    json!({ "name": "envoy.transport_sockets.tls", "typed_config": tls })
}

/// The cluster of wherever requests go.
fn anywhere() -> Value {
    let cache = json!({ "dns_cache_config": names() });
    let dynamic = typed("clusters.dynamic_forward_proxy.v3.ClusterConfig", cache);
    json!({
        "name": "origin",
        "lb_policy": "CLUSTER_PROVIDED",
        "circuit_breakers": breakers(),
        "cluster_type": { "name": "envoy.clusters.dynamic_forward_proxy", "typed_config": dynamic },
    })
}

/// The cluster of the origin alone, by TLS that is verified.
fn origin(task: &Task<'_>) -> Value {
    let tls = json!({
        "sni": HOST,
        "common_tls_context": {
            "validation_context": {
                "trusted_ca": { "filename": task.authorities.origin.pem_path() },
                "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": HOST } }],
            },
        },
    });
    let tls = typed("transport_sockets.tls.v3.UpstreamTlsContext", tls);
    let endpoint = json!({ "endpoint": { "address": address(task.origin) } });
    json!({
        "name": "origin",
        "type": "STATIC",
        "circuit_breakers": breakers(),
        "load_assignment": { "cluster_name": "origin", "endpoints": [{ "lb_endpoints": [endpoint] }] },
        "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": tls },
    })
}

/// What filter and cluster have to agree on.
fn names() -> Value {
    json!({ "name": "names", "dns_lookup_family": "V4_ONLY" })
}

fn breakers() -> Value {
    json!({ "thresholds": [{ "max_connections": MANY, "max_pending_requests": MANY, "max_requests": MANY }] })
}

fn address(of: std::net::SocketAddr) -> Value {
    json!({ "socket_address": { "address": of.ip().to_string(), "port_value": of.port() } })
}
