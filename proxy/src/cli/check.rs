//! `exeat check`: the gateway's verdicts without a network.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, Write};

use clap::Args;
use exeat_policy::analyse::explain::{Says, Step, Walk};
use exeat_policy::target::{Authority, TargetError};
use exeat_policy::{Rule, guard};
use http::Method;
use serde::Serialize;

use super::{Ended, FileArgs, Style, show_diagnostics, show_load_error, stdout_has_color};
use crate::judge::{Asked, Judge, Judgement};
use crate::lines::{self, Blocks};
use crate::load;
use crate::view::{JudgementView, RuleView};

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
    /// Say what each layer says, and by which rules
    #[arg(long)]
    explain: bool,
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
    #[serde(flatten)]
    judgement: JudgementView<'a>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a Explanation>,
    /// What the machine-readable form leaves out.
    #[serde(skip)]
    note: Option<&'a str>,
}

pub(super) fn run(arguments: &CheckArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let loaded = match load::load(&arguments.files.inputs()) {
        Ok(loaded) => loaded,
        Err(error) => return show_load_error(error),
    };
    if io::stderr().is_terminal() {
        show_diagnostics(&loaded.warnings)?;
    }
    if loaded.is_example {
        writeln!(io::stderr(), "exeat: no manifest is named (-m), so the built-in example is asked")?;
    }
    let judge = Judge::new(loaded, !arguments.no_guard);
    let walk = arguments.explain.then(|| Walk::new(judge.policy()));
    let checker = Checker { arguments, judge: &judge, walk, style: Style::new(stdout_has_color()) };
    let mut out = BufWriter::new(out);
    let mut denied = false;
    for input in &arguments.inputs {
        if input != "-" {
            let mut text = Vec::new();
            denied |= checker.write(input, &mut text);
            out.write_all(&text)?;
            continue;
        }
        let work = |block: Vec<u8>| {
            let (mut text, mut denied) = (Vec::with_capacity(block.len() * 4), false);
            for line in lines::of(&block) {
                denied |= checker.write(&String::from_utf8_lossy(line), &mut text);
            }
            (text, denied)
        };
        lines::in_order(Blocks::new(io::stdin()), work, |(text, some_denied)| {
            denied |= some_denied;
            out.write_all(&text)?;
            Ok(out.flush()?)
        })?;
    }
    out.flush()?;
    Ok(if denied { Ended::Found } else { Ended::Clean })
}

/// What the threads of a check share.
struct Checker<'a> {
    arguments: &'a CheckArgs,
    judge: &'a Judge,
    walk: Option<Walk>,
    style: Style,
}

impl Checker<'_> {
    /// Writes the verdict about one input, and says whether it is a refusal.
    fn write(&self, input: &str, out: &mut Vec<u8>) -> bool {
        let input = input.trim();
        let asked = Asked::read(input);
        let judgement = self.judge.judge(&asked, &self.arguments.method);
        let explanation = self.walk.as_ref().map(|walk| Explanation::of(walk, &asked, self.judge));
        let denied = judgement.is_denied();
        let line = self.line(input, &judgement, explanation.as_ref());
        // Writing to memory does not fail.
        let _ = if self.arguments.json {
            serde_json::to_writer(&mut *out, &line).map_err(io::Error::from).and_then(|()| out.write_all(b"\n"))
        } else {
            writeln!(out, "{}", Shown(&line, self.style))
        };
        denied
    }

    fn line<'a>(
        &'a self,
        input: &'a str,
        judgement: &'a Judgement<'a>,
        explanation: Option<&'a Explanation>,
    ) -> Line<'a> {
        Line {
            judgement: JudgementView::new(input, self.arguments.method.as_str(), judgement),
            explanation,
            note: judgement.note.as_deref(),
        }
    }
}

/// What stands behind a verdict.
#[derive(Debug, Serialize)]
struct Explanation {
    /// What each layer says about a URL, outermost first; none for an authority, whose requests differ.
    layers: Vec<LayerView>,
    /// The class of an address literal.
    address: Option<&'static str>,
    /// What becomes of a tunnel to the same authority.
    tunnel: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct LayerView {
    layer: String,
    says: &'static str,
    rules: Vec<PlaceView>,
    #[serde(skip)]
    step: Step,
}

#[derive(Debug, Serialize)]
struct PlaceView {
    list: &'static str,
    pattern: String,
    file: String,
    line: u32,
    column: u32,
}

impl Explanation {
    fn of(walk: &Walk, asked: &Result<Asked, TargetError>, judge: &Judge) -> Self {
        let authority: Option<&Authority> = match asked {
            Ok(Asked::Url(target)) => Some(target.authority()),
            Ok(Asked::Authority(authority)) => Some(authority),
            Err(_) => None,
        };
        let layers = match asked {
            Ok(Asked::Url(target)) => walk.steps(target).into_iter().map(LayerView::from).collect(),
            _ => Vec::new(),
        };
        Self {
            layers,
            address: authority.and_then(|authority| authority.host().ip()).map(|ip| guard::classify(ip).as_str()),
            tunnel: authority.map(|authority| judge.authority(judge.policy(), authority).verdict),
        }
    }
}

impl From<Step> for LayerView {
    fn from(step: Step) -> Self {
        let view = |list: &'static str, rule: &Rule| PlaceView {
            list,
            pattern: rule.pattern.to_string(),
            file: rule.file.to_string(),
            line: rule.line,
            column: rule.column,
        };
        let blocked = step.blocked.iter().map(|rule| view("blocked", rule));
        let rules = blocked.chain(step.allowed.iter().map(|rule| view("allowed", rule))).collect();
        Self { layer: step.layer.clone(), says: step.says.as_str(), rules, step }
    }
}

/// A verdict for people.
struct Shown<'a>(&'a Line<'a>, Style);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(line, Style { green, red, yellow, dim, reset, .. }) = self;
        let JudgementView { input, verdict, reason, rule, inject, .. } = &line.judgement;
        let color = match *verdict {
            "deny" => red,
            "inspect" => yellow,
            _ => green,
        };
        write!(f, "{color}{:<7}{reset} {}  {}", verdict, input.escape_debug(), reason)?;
        if let Some(RuleView { layer, list, pattern, file, line, column }) = rule {
            write!(f, "  {dim}{layer} {list} {pattern:?} at {file}:{line}:{column}{reset}")?;
        }
        if !inject.is_empty() {
            write!(f, "  injects {}", inject.join(", "))?;
        }
        if let Some(note) = &line.note {
            write!(f, "  {dim}({note}){reset}")?;
        }
        if let Some(explanation) = line.explanation {
            write!(f, "{}", ShownExplanation(explanation, self.1))?;
        }
        Ok(())
    }
}

struct ShownExplanation<'a>(&'a Explanation, Style);

impl fmt::Display for ShownExplanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(explanation, Style { dim, reset, .. }) = self;
        for LayerView { layer, rules, step, .. } in &explanation.layers {
            let (allowed, blocked) = step.rules;
            let says = match step.says {
                Says::Blocks => "blocks it".to_owned(),
                Says::Allows => "allows it".to_owned(),
                Says::Lacks => format!("does not allow it: none of {allowed} allowed rules matches"),
                Says::Nothing => format!("says nothing: no allowed list, {blocked} blocked rules that do not match"),
            };
            write!(f, "\n        {layer}: {says}")?;
            for PlaceView { list, pattern, file, line, column } in rules {
                write!(f, "\n          {dim}{list} {pattern:?} at {file}:{line}:{column}{reset}")?;
            }
        }
        if let Some(class) = explanation.address {
            write!(f, "\n        the address is {class}")?;
        }
        match explanation.tunnel {
            Some("permit") => write!(f, "\n        a tunnel there is blind"),
            Some("inspect") => write!(f, "\n        a tunnel there is opened, each request in it judged"),
            Some(_) => write!(f, "\n        a tunnel there is denied"),
            None => Ok(()),
        }
    }
}
