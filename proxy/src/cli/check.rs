//! `exeat check`: the gateway's verdicts without a network.
//!
//! The judgement is the gateway's own: the same policy, guard and injections, loaded the same way. What it cannot know
//! without a network is which addresses a name has; fixed names of `[dns] hosts` and address literals are judged.

use std::fmt;
use std::io::{self, BufRead as _, BufWriter, IsTerminal as _, Write};

use clap::Args;
use exeat_policy::target::{Authority, Target, TargetError};
use exeat_policy::{AuthorityVerdict, Reason, RuleRef, Verdict};
use http::Method;
use serde::Serialize;

use super::{Ended, FileArgs, Style, show_diagnostics, show_load_error, stdout_has_color};
use crate::credentials::{Injector, Sources};
use crate::guard::Guard;
use crate::load::{self, Loaded};
use crate::mcp::policy::Policies;
use crate::permit::{self, Judged, Passage};
use crate::view::RuleView;

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    files: FileArgs,
    /// The method that URLs are judged for
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: Method,
    /// Write one JSON object a line
    #[arg(long)]
    json: bool,
    /// Leave address classes out of the verdict
    #[arg(long)]
    no_guard: bool,
    /// URLs and HOST:PORT authorities; `-` reads them from the standard input, one a line
    #[arg(required = true, value_name = "URL|HOST:PORT")]
    inputs: Vec<String>,
}

/// One verdict.
#[derive(Debug, Serialize)]
struct Line<'a> {
    input: &'a str,
    method: &'a str,
    verdict: &'static str,
    reason: &'static str,
    rule: Option<RuleView<'a>>,
    inject: Vec<String>,
    /// What the machine-readable form leaves out.
    #[serde(skip)]
    note: Option<String>,
}

pub(super) fn run(arguments: &CheckArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let mut loaded = match load::load(&arguments.files.inputs()) {
        Ok(loaded) => loaded,
        Err(error) => return show_load_error(error),
    };
    if io::stderr().is_terminal() {
        show_diagnostics(&loaded.warnings)?;
    }
    if loaded.is_example {
        writeln!(io::stderr(), "exeat: no manifest is named (-m), so the built-in example is asked")?;
    }
    let injections = std::mem::take(&mut loaded.injections);
    let guard = &loaded.config.guard;
    let judge = Judge {
        guard: Guard::new(guard.allow.clone(), guard.blocked_ports.clone(), Vec::new()),
        injector: Injector::new(injections, Sources::default()),
        mcp: Policies::new(std::mem::take(&mut loaded.mcp.policies)),
        loaded,
        method: &arguments.method,
        addresses: !arguments.no_guard,
    };
    let mut out = BufWriter::new(out);
    let style = Style::new(stdout_has_color());
    let mut denied = false;
    let mut write = |input: &str| -> anyhow::Result<()> {
        let line = judge.judge(input);
        denied |= line.verdict == "deny";
        if arguments.json {
            serde_json::to_writer(&mut out, &line).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        } else {
            writeln!(out, "{}", Shown(&line, style))?;
        }
        Ok(())
    };
    for input in &arguments.inputs {
        if input != "-" {
            write(input)?;
            continue;
        }
        for line in io::stdin().lock().split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line));
            if !line.is_empty() {
                write(&line)?;
            }
        }
    }
    out.flush()?;
    Ok(if denied { Ended::Found } else { Ended::Clean })
}

/// Whether what stands before the first colon is a host and no scheme, or what stands behind it a port.
fn is_meant_as_authority(input: &str) -> bool {
    let Some((host, port)) = input.split_once(':') else { return false };
    host.contains(['.', '[']) || port.starts_with(|first: char| first.is_ascii_digit() || first == '+')
}

struct Judge<'a> {
    loaded: Loaded,
    guard: Guard,
    injector: Injector,
    mcp: Policies,
    method: &'a Method,
    addresses: bool,
}

impl Judge<'_> {
    fn judge<'s>(&'s self, input: &'s str) -> Line<'s> {
        let input = input.trim();
        if !input.contains("://") {
            match Authority::parse(input) {
                Ok(authority) => return self.authority(input, &authority),
                Err(error) if is_meant_as_authority(input) => return self.unreadable(input, &error),
                Err(_) => {}
            }
        }
        match Target::parse(input) {
            Ok(target) => self.url(input, &target),
            Err(error) => self.unreadable(input, &error),
        }
    }

    fn url<'s>(&'s self, input: &'s str, target: &Target) -> Line<'s> {
        let Judged { leave, mut reason, rule, layer } = permit::request(&self.loaded.policy, &self.guard, target);
        let mut verdict = if leave.is_some() { Verdict::Allow } else { Verdict::Deny };
        let mut inject = Vec::new();
        let userinfo = target.had_userinfo().then(|| "userinfo ignored; the proxy refuses it".to_owned());
        let mut note = userinfo.or_else(|| lacking(rule, layer));
        if verdict == Verdict::Allow {
            let refused = self.address(target.authority()).err().map(|reason| (reason, None));
            let refused = refused.or_else(|| match self.injector.find(target, self.method) {
                Ok(injection) => {
                    inject = injection.map_or_else(Vec::new, |injection| injection.names().collect());
                    None
                }
                Err(error) => Some((error.reason, Some(error.detail))),
            });
            if let Some((why, detail)) = refused {
                (verdict, reason, note) = (Verdict::Deny, why, detail.or(note));
            }
        }
        self.line(input, verdict.as_str(), reason, rule, inject, note)
    }

    fn authority<'s>(&'s self, input: &'s str, authority: &Authority) -> Line<'s> {
        let (bound, held) = (self.injector.concerns(authority), self.mcp.concerns(authority));
        let Judged { leave, reason, rule, layer } =
            permit::tunnel(&self.loaded.policy, &self.guard, authority, bound || held);
        let (verdict, note) = match &leave {
            None => (AuthorityVerdict::Deny, lacking(rule, layer)),
            Some(Passage::Inspect) => {
                let why =
                    if bound { Some("credentials are put on") } else { held.then_some("MCP messages are judged") };
                (AuthorityVerdict::Inspect, why.map(str::to_owned))
            }
            Some(Passage::Blind { tls_only, .. }) => {
                (AuthorityVerdict::Permit, tls_only.then(|| "if it opens as TLS to the host".to_owned()))
            }
        };
        let refused = match verdict {
            AuthorityVerdict::Deny => None,
            AuthorityVerdict::Inspect if !self.loaded.config.intercept.enabled => Some(Reason::InspectOff),
            _ => self.address(authority).err(),
        };
        match refused {
            None => self.line(input, verdict.as_str(), reason, rule, Vec::new(), note),
            Some(why) => self.line(input, AuthorityVerdict::Deny.as_str(), why, rule, Vec::new(), None),
        }
    }

    /// Judges the addresses that are known without asking.
    fn address(&self, authority: &Authority) -> Result<(), Reason> {
        if !self.addresses {
            return Ok(());
        }
        let host = authority.host();
        let known = match host.ip() {
            Some(ip) => vec![ip],
            None => self.loaded.config.dns.hosts.get(host.as_str()).cloned().unwrap_or_default(),
        };
        self.guard.check(&known, authority.port()).map(|_| ()).map_err(|(reason, _)| reason)
    }

    fn unreadable<'s>(&'s self, input: &'s str, error: &TargetError) -> Line<'s> {
        self.line(input, Verdict::Deny.as_str(), error.reason(), None, Vec::new(), Some(error.to_string()))
    }

    fn line<'s>(
        &'s self,
        input: &'s str,
        verdict: &'static str,
        reason: Reason,
        rule: Option<RuleRef<'s>>,
        inject: Vec<String>,
        note: Option<String>,
    ) -> Line<'s> {
        let rule = rule.map(RuleView::from);
        Line { input, method: self.method.as_str(), verdict, reason: reason.as_str(), rule, inject, note }
    }
}

/// Which layer lacks a rule, where one does.
fn lacking(rule: Option<RuleRef<'_>>, layer: Option<&str>) -> Option<String> {
    layer.filter(|_| rule.is_none()).map(|layer| format!("the layer {layer:?} has no rule for it"))
}

/// A verdict for people.
struct Shown<'a>(&'a Line<'a>, Style);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(line, Style { green, red, yellow, dim, reset, .. }) = self;
        let color = match line.verdict {
            "deny" => red,
            "inspect" => yellow,
            _ => green,
        };
        write!(f, "{color}{:<7}{reset} {}  {}", line.verdict, line.input.escape_debug(), line.reason)?;
        if let Some(RuleView { layer, list, pattern, file, line, column }) = &line.rule {
            write!(f, "  {dim}{layer} {list} {pattern:?} at {file}:{line}:{column}{reset}")?;
        }
        if !line.inject.is_empty() {
            write!(f, "  injects {}", line.inject.join(", "))?;
        }
        if let Some(note) = &line.note {
            write!(f, "  {dim}({note}){reset}")?;
        }
        Ok(())
    }
}
