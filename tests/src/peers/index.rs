//! A package index for pip and a registry for npm, each with packages made on the spot.

use std::process::Command;

use ring::digest::{SHA256, digest};
use serde_json::json;
use tempfile::TempDir;

use super::{python, script};
use crate::origin::{Reply, Request, Site};

/// Packages in a folder of their own: the Python package `exeat-sample` 1.0, the npm packages `exeat-sample` 1.0.0 and
/// `@exeat/scoped` 1.0.0.
#[derive(Debug)]
pub struct Packages(TempDir);

impl Default for Packages {
    fn default() -> Self {
        let dir = TempDir::new().unwrap();
        let made = Command::new(python()).arg(script("make_packages.py")).arg(dir.path()).status().unwrap();
        assert!(made.success(), "make_packages.py failed");
        Self(dir)
    }
}

impl Packages {
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }

    /// A simple index (PEP 503) below `/simple/`, its files below `/files/`.
    #[must_use]
    pub fn pypi(&self) -> Site {
        let name = "exeat_sample-1.0-py3-none-any.whl";
        let wheel = self.read(name);
        let sum: String = digest(&SHA256, &wheel).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let page = format!("<!DOCTYPE html><a href=\"/files/{name}#sha256={sum}\">{name}</a>");
        Site::default()
            .at("/simple/exeat-sample/", Reply::bytes("text/html", page))
            .at(&format!("/files/{name}"), Reply::bytes("application/octet-stream", wheel))
            .at("/*", Reply::status(404))
    }

    /// A registry as npm asks it; the scoped package is asked for as `/@exeat%2fscoped`.
    #[must_use]
    pub fn npm(&self) -> Site {
        Site::default()
            .at("/exeat-sample", packument("exeat-sample", "exeat-sample"))
            .at("/@exeat%2fscoped", packument("@exeat/scoped", "scoped"))
            .at("/exeat-sample/-/exeat-sample-1.0.0.tgz", self.tarball("exeat-sample-1.0.0.tgz"))
            .at("/@exeat/scoped/-/scoped-1.0.0.tgz", self.tarball("scoped-1.0.0.tgz"))
            .at("/*", Reply::status(404))
    }

    fn tarball(&self, name: &str) -> Reply {
        Reply::bytes("application/octet-stream", self.read(name))
    }
}

/// What a registry says of a package: its versions, and where they are, which needs the registry's own authority.
fn packument(name: &'static str, file: &'static str) -> Reply {
    Reply::computed(move |request: Request| async move {
        let host = request.value("host").unwrap_or_default();
        let dist = json!({ "tarball": format!("https://{host}/{name}/-/{file}-1.0.0.tgz") });
        let version = json!({ "name": name, "version": "1.0.0", "dist": dist });
        Reply::json(&json!({ "name": name, "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } }))
    })
}
