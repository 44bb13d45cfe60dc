//! Diagnostics as a SARIF 2.1.0 document (OASIS, Static Analysis Results Interchange Format), for code scanning.

use exeat_policy::diag::{Code, Diagnostic, Severity};
use serde_json::{Value, json};

/// The document, with one run; it ends with a line end. Columns count characters, as the run says.
pub(super) fn render(diagnostics: &[Diagnostic]) -> String {
    let mut codes: Vec<Code> = Vec::new();
    for diagnostic in diagnostics {
        if !codes.contains(&diagnostic.code) {
            codes.push(diagnostic.code);
        }
    }
    codes.sort_by_key(|code| code.as_str());
    let results: Vec<Value> = diagnostics.iter().map(|diagnostic| result(diagnostic, &codes)).collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "exeat",
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": codes.iter().copied().map(rule).collect::<Vec<_>>(),
                },
            },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{document:#}\n")
}

fn rule(code: Code) -> Value {
    json!({
        "id": code.as_str(),
        "shortDescription": { "text": code.summary() },
        "fullDescription": { "text": super::codes::explain(code) },
        "defaultConfiguration": { "level": level(code.severity()) },
    })
}

fn result(diagnostic: &Diagnostic, codes: &[Code]) -> Value {
    let (start, end) = (diagnostic.start(), diagnostic.end());
    let text = match diagnostic.help.as_str() {
        "" => diagnostic.message.clone(),
        help => format!("{}; help: {help}", diagnostic.message),
    };
    json!({
        "ruleId": diagnostic.code.as_str(),
        "ruleIndex": codes.iter().position(|code| *code == diagnostic.code),
        "level": level(diagnostic.severity()),
        "message": { "text": text },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(diagnostic.source.name()) },
                "region": {
                    "startLine": start.line,
                    "startColumn": start.column,
                    "endLine": end.line,
                    "endColumn": end.column,
                },
            },
        }],
    })
}

const fn level(severity: Severity) -> &'static str {
    severity.as_str()
}

/// A path as a URI reference (RFC 3986, section 4.1): unreserved characters and slashes as they are, the rest escaped.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use exeat_policy::diag::{Source, Span};

    use super::*;

    const SCHEMA: &str = include_str!("../../../tests/data/sarif-2.1.0.schema.json");

    /// The published schema. Its pattern of a language has a bracket that closes nothing, which not every engine takes.
    fn schema() -> jsonschema::Validator {
        let schema = SCHEMA.replace("{2}]?$", "{2}$");
        jsonschema::draft7::new(&serde_json::from_str(&schema).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_valid_by_the_published_schema() {
        let schema = schema();
        let source = Source::new("folder/größe und mehr.toml", "a = 1\nb = 2\n");
        let absolute = Source::new("/etc/agent.toml", "");
        let found: Vec<Diagnostic> = Code::ALL
            .iter()
            .flat_map(|code| {
                let one = Diagnostic::new(*code, &source, Span::new(0, 9), "what \"was\"\n found", "do");
                [one, Diagnostic::new(*code, &absolute, Span::new(0, 0), "what", "")]
            })
            .collect();
        for found in [&found[..], &[]] {
            let document: Value = serde_json::from_str(&render(found)).unwrap();
            let errors: Vec<String> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:#?}");
            assert_eq!(document["runs"][0]["results"].as_array().unwrap().len(), found.len());
        }
        let document: Value = serde_json::from_str(&render(&found)).unwrap();
        for result in document["runs"][0]["results"].as_array().unwrap() {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(document["runs"][0]["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        }
    }

    #[test]
    fn the_schema_refuses_what_is_no_such_document() {
        let schema = schema();
        let mut document: Value = serde_json::from_str(&render(&[])).unwrap();
        document["runs"][0]["columnKind"] = json!("bytes");
        assert!(!schema.is_valid(&document));
    }

    #[test]
    fn paths_are_uris() {
        assert_eq!(uri("a b/ü%.toml"), "a%20b/%C3%BC%25.toml");
        assert_eq!(uri("/etc/agent.toml"), "file:///etc/agent.toml");
    }
}
