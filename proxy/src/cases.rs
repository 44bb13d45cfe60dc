//! Files of cases: what a manifest is expected to permit and deny.
//!
//! ```toml
//! manifests = ["agent.toml"]          # outermost first; used where the command line names none
//!
//! [[case]]
//! name = "the API, and nothing beside it"
//! url = "https://api.example.test/v1/items"
//! expect = "allow"
//!
//! [[case]]
//! authority = "api.example.test:443"
//! expect = "inspect"
//!
//! [[case]]
//! url = "https://api.example.test/v1/items"
//! session = { allowed = ["docs.example.test"] }
//! expect = "deny"
//! reason = "not_allowed"
//! layer = "session"
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use exeat_policy::diag::{Code, Diagnostic, Problems, Source, Span};
use exeat_policy::doc::{self, Field, Fields, Format, Spanned, quoted};
use exeat_policy::policy::Layer;
use exeat_policy::target::{Authority, Target, TargetError};
use exeat_policy::{Pattern, Reason, Rule};
use http::Method;

use crate::judge::Asked;

/// A file of cases.
#[derive(Debug)]
pub(crate) struct Cases {
    /// The file.
    pub(crate) source: Arc<Source>,
    /// `manifests`, outermost first, relative to the file's folder.
    pub(crate) manifests: Vec<PathBuf>,
    /// `config`, relative to the file's folder.
    pub(crate) config: Option<PathBuf>,
    /// The cases.
    pub(crate) cases: Vec<Case>,
}

/// One expectation.
#[derive(Debug)]
pub(crate) struct Case {
    /// Where it stands.
    pub(crate) span: Span,
    /// `name`, or what is asked.
    pub(crate) name: String,
    /// `url` or `authority`.
    pub(crate) asked: Result<Asked, TargetError>,
    /// `method`.
    pub(crate) method: Method,
    /// `session`: a layer within all others.
    pub(crate) session: Option<Layer>,
    /// `expect`: a verdict.
    pub(crate) expect: &'static str,
    /// `reason`.
    pub(crate) reason: Option<Reason>,
    /// `rule`: the deciding pattern, as it is written.
    pub(crate) rule: Option<String>,
    /// `layer`: the deciding one.
    pub(crate) layer: Option<String>,
}

const VERDICTS: [(&str, &str); 4] =
    [("allow", "allow"), ("deny", "deny"), ("permit", "permit"), ("inspect", "inspect")];

impl Cases {
    /// Reads a file; the value is there only when no error is among the diagnostics.
    pub(crate) fn read(source: &Arc<Source>) -> (Option<Self>, Vec<Diagnostic>) {
        let root = match doc::parse(source, Format::of(source.name())) {
            Ok(root) => root,
            Err(problems) => return (None, problems),
        };
        let problems = Problems::new(source);
        let cases = Fields::root(&root, &problems).map(|fields| read(fields, source));
        let cases = cases.filter(|_| !problems.has_errors());
        (cases, problems.into_vec())
    }
}

fn read(mut fields: Fields<'_>, source: &Arc<Source>) -> Cases {
    let manifests = fields.strings("manifests").map_or_else(Vec::new, Spanned::into_value);
    let manifests = manifests.into_iter().map(|path| PathBuf::from(path.value)).collect();
    let config = fields.string("config").map(|path| PathBuf::from(path.value));
    let cases = fields.list_of_tables("case");
    if cases.is_empty() && !fields.has("case") {
        let help = "add a case: `[[case]]` with `url` or `authority` and `expect`";
        fields.report(Code::NoCases, "the file has no case", help);
    }
    let cases = cases.into_iter().filter_map(|case| read_case(case, source)).collect();
    fields.finish();
    Cases { source: Arc::clone(source), manifests, config, cases }
}

fn read_case(mut fields: Fields<'_>, source: &Arc<Source>) -> Option<Case> {
    let span = fields.span();
    let name = fields.string("name");
    let url = fields.string("url");
    let authority = fields.string("authority");
    let method = fields.parsed("method", "write a method such as GET", |text| text.parse::<Method>());
    let session = fields.table("session").map(|session| layer(session, source));
    let expect = fields.required("expect").and_then(|field| field.word(&VERDICTS));
    let reason = fields.take("reason").and_then(reason);
    let rule = fields.string("rule").map(Spanned::into_value);
    let layer = fields.string("layer").map(Spanned::into_value);
    let asked = match (&url, &authority) {
        (Some(url), None) => Some((&url.value, Target::parse(&url.value).map(Asked::Url))),
        (None, Some(authority)) => Some((&authority.value, Authority::parse(&authority.value).map(Asked::Authority))),
        (Some(_), Some(_)) => {
            fields.report(Code::BadCase, "the case has a url and an authority", "keep one, or write two cases");
            None
        }
        (None, None) => {
            fields.report(Code::BadCase, "the case has nothing to judge", "add `url` or `authority`");
            None
        }
    };
    if let (Some(expect), Some(_)) = (&expect, &asked) {
        let other = if url.is_some() { ["permit", "inspect"] } else { ["allow", "allow"] };
        if other.contains(&expect.value) {
            let (what, verdicts) = if url.is_some() {
                ("a url", "`allow` or `deny`")
            } else {
                ("an authority", "`permit`, `inspect` or `deny`")
            };
            let message = format!("{} is no verdict about {what}", quoted(expect.value));
            fields.problems().report(Code::BadCase, expect.span, message, format!("expect {verdicts}"));
        }
    }
    fields.finish();
    let (text, asked) = asked?;
    let name = name.map_or_else(|| text.clone(), Spanned::into_value);
    let method = method.map_or(Method::GET, Spanned::into_value);
    Some(Case { span, name, asked, method, session, expect: expect?.value, reason, rule, layer })
}

fn reason(field: Field<'_>) -> Option<Reason> {
    let text = field.str()?;
    let known = Reason::ALL.iter().copied().find(|reason| reason.as_str() == text.value);
    if known.is_none() {
        let help = match doc::nearest(text.value, Reason::ALL.iter().map(|reason| reason.as_str())) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "write a reason, such as `not_allowed` or `blocked`".to_owned(),
        };
        field.report(Code::BadValue, format!("{} is no reason", quoted(text.value)), help);
    }
    known
}

/// The rules of a session, as the innermost layer.
fn layer(mut fields: Fields<'_>, source: &Source) -> Layer {
    let problems = fields.problems();
    let mut list = |key| {
        let written = fields.strings(key).map_or_else(Vec::new, Spanned::into_value);
        let mut rules = Vec::new();
        for written in written {
            let at = source.position(written.span.start);
            let (file, pattern) = (Arc::clone(source.name()), Arc::from(written.value.as_str()));
            match Pattern::parse(&written.value) {
                Ok(parsed) => rules.push((parsed, Rule { pattern, file, line: at.line, column: at.column })),
                Err(error) => problems.report(Code::Pattern, written.span, error.message, error.help),
            }
        }
        rules
    };
    let (allowed, blocked) = (list("allowed"), list("blocked"));
    fields.finish();
    Layer { name: "session".into(), allowed, blocked }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<(u32, &'static str)> {
        let (cases, found) = Cases::read(&Source::new("cases.toml", text));
        assert_eq!(cases.is_none(), !found.is_empty());
        found.iter().map(|one| (one.start().line, one.code.as_str())).collect()
    }

    #[test]
    fn cases_are_read_strictly() {
        let good = "[[case]]\nurl = \"https://a.test/\"\nexpect = \"allow\"\nmethod = \"POST\"\n\
                    session = { allowed = [\"a.test\"] }\nreason = \"allowed\"\nrule = \"a.test\"\nlayer = \"session\"\n";
        assert!(codes(good).is_empty());
        let bad_url = "[[case]]\nurl = \"not a url\"\nexpect = \"deny\"\nreason = \"malformed\"\n";
        assert!(codes(bad_url).is_empty(), "what cannot be read is denied, which may be expected");
        for (text, expected) in [
            ("", &[(1, "E0402")][..]),
            ("[[case]]\nexpect = \"allow\"\n", &[(1, "E0401")]),
            ("[[case]]\nurl = \"https://a.test/\"\nauthority = \"a.test:1\"\nexpect = \"deny\"\n", &[(1, "E0401")]),
            ("[[case]]\nurl = \"https://a.test/\"\nexpect = \"permit\"\n", &[(3, "E0401")]),
            ("[[case]]\nauthority = \"a.test:1\"\nexpect = \"allow\"\n", &[(3, "E0401")]),
            ("[[case]]\nauthority = \"a.test:1\"\n", &[(1, "E0005")]),
            ("[[case]]\nurl = \"https://a.test/\"\nexpect = \"deny\"\nreason = \"blockd\"\n", &[(4, "E0006")]),
            ("[[case]]\nurl = \"https://a.test/\"\nexpect = \"deny\"\nresaon = \"x\"\n", &[(4, "E0003")]),
            ("[[case]]\nurl = \"https://a.test/\"\nexpect = \"deny\"\nsession.allowed = [\"a b\"]\n", &[(4, "E0101")]),
        ] {
            assert_eq!(codes(text), expected, "{text}");
        }
    }
}
