//! `/`: the console, a page that asks this listener for everything it shows.
//!
//! Its files are part of the program. It loads nothing from elsewhere, and what it shows of requests is text that nobody
//! vouches for: the policy of the page keeps a browser from running any of it, whatever the page itself does.

use http::{HeaderName, HeaderValue, StatusCode, header};

use super::answer::{self, Answer};
use crate::respond::Problem;
use exeat_policy::Reason;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files, by the name behind `/console/`; the page itself has none.
const FILES: &[(&str, &str, &str)] = &[
    ("", HTML, include_str!("console/index.html")),
    ("console.css", CSS, include_str!("console/console.css")),
    ("console.js", SCRIPT, include_str!("console/console.js")),
    ("api.js", SCRIPT, include_str!("console/api.js")),
    ("charts.js", SCRIPT, include_str!("console/charts.js")),
    ("decisions.js", SCRIPT, include_str!("console/decisions.js")),
    ("dom.js", SCRIPT, include_str!("console/dom.js")),
];

/// What the page may do: run its own scripts, look as its own style says, and ask this listener.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The file of a name.
pub(super) fn file(name: &str) -> Answer {
    let Some((_, content_type, text)) = FILES.iter().find(|(known, ..)| *known == name) else {
        return answer::problem(Problem::new(Reason::NotFound));
    };
    let mut answer = answer::whole(StatusCode::OK, content_type, *text);
    for (field, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        answer.headers_mut().insert(field, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_no_file_that_is_not_there_and_none_from_elsewhere() {
        for (name, _, text) in FILES {
            let quoted = text.split(['"', '\'']).filter(|text| text.ends_with(".js") || text.ends_with(".css"));
            for path in quoted {
                let file = path.trim_start_matches("./").trim_start_matches("console/");
                assert!(FILES.iter().any(|(known, ..)| *known == file), "{name} names {path}");
            }
            for (at, _) in text.match_indices("://") {
                let address =
                    &text[text[..at].rfind(|char: char| !char.is_ascii_alphabetic()).map_or(0, |at| at + 1)..];
                let is_shown = ["https://example.com/", "https://host/path", "http://www.w3.org/2000/svg", "://`"];
                assert!(is_shown.iter().any(|known| address.starts_with(known)), "{name}: {}", &address[..40]);
            }
            for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style="] {
                assert!(!text.contains(markup), "{name} holds {markup}");
            }
        }
    }
}
