//! The Prometheus text format, as much of it as counters and gauges need.

use std::collections::BTreeMap;

/// One scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Metrics {
    /// Parses the text of a scrape.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { samples: lines.map(sample).collect() }
    }

    /// The sum of the series called `name` that carry all of `labels`; 0 where there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).sum()
    }

    /// Whether there is a series called `name` that carries all of `labels`.
    #[must_use]
    pub fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        self.matching(name, labels).next().is_some()
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> {
        let samples = self.samples.iter().filter(move |(sample, has, _)| {
            sample == name && labels.iter().all(|(label, value)| has.get(*label).is_some_and(|has| has == value))
        });
        samples.map(|(_, _, value)| *value)
    }

    /// How many series there are in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    (name.to_owned(), parse_labels(labels.trim_end_matches('}')), value)
}

fn parse_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, after) = quoted(after);
        labels.insert(name.trim_matches([',', ' ']).to_owned(), value);
        rest = after;
    }
    labels
}

/// Reads up to the closing quote; returns the unescaped text and what follows the quote.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, next)) = chars.next() {
        match next {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => {}
            },
            other => value.push(other),
        }
    }
    panic!("a label value is not closed: {text}")
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let text = "# TYPE a counter\na_total{x=\"1\",y=\"q\\\"}, \\\\\"} 2\na_total{x=\"2\",y=\"r\"} 3\nb 1.5\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.len(), 3);
        assert_eq!(metrics.sum("a_total", &[]), 5.0);
        assert_eq!(metrics.sum("a_total", &[("y", "q\"}, \\")]), 2.0);
        assert_eq!(metrics.sum("b", &[]), 1.5);
        assert!(!metrics.has("a_total", &[("x", "3")]));
    }
}
