//! What each diagnostic code means: the page `docs/codes.md`, section by section.

use exeat_policy::Code;

const PAGE: &str = include_str!("../../../docs/codes.md");

/// The section about a code: its heading, what it means, and an example. A code without a section, which a test rules
/// out, is explained by its summary.
pub(super) fn explain(code: Code) -> String {
    let section = sections().find(|(name, _)| *name == code.as_str());
    section.map_or_else(|| format!("{code}: {}", code.summary()), |(_, text)| text.trim_end().to_owned())
}

/// The sections, each with the code it is about.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    let sections = PAGE.split("\n## ").skip(1);
    sections.filter_map(|section| {
        let section = section.split("\n# ").next().unwrap_or(section);
        Some((section.split([' ', ':', '\n']).next()?, section))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_section_and_every_section_a_code() {
        for code in Code::ALL {
            let count = sections().filter(|(name, _)| *name == code.as_str()).count();
            assert_eq!(count, 1, "{code} has {count} sections in docs/codes.md");
            let text = explain(*code);
            assert!(text.starts_with(&format!("{code}: ")) && text.lines().count() > 2, "{code}: {text}");
        }
        for (name, _) in sections() {
            assert!(name.parse::<Code>().is_ok(), "docs/codes.md explains {name}, which is no code");
        }
        let names: Vec<&str> = sections().map(|(name, _)| name).collect();
        let rank = |name: &str| (["E", "W", "N"].iter().position(|kind| name.starts_with(kind)), name.to_owned());
        assert!(names.is_sorted_by_key(|name| rank(name)), "the sections are not in the order of their codes");
    }
}
