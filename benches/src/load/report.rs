//! The tables.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::growth::Grown;
use super::peer::Peer;
use super::runner::Measurement;
use super::scenario::{Bound, Figure, Scenario};
use super::stats::median;

/// All measurements, and the medians over their rounds.
pub(crate) struct Report<'a> {
    /// What peers showed.
    pub(crate) measured: &'a [Measurement],
    /// What became of exeat with more and more of something.
    pub(crate) grown: &'a [Grown],
}

/// A bound and the figure that is held to it.
struct Held<'a> {
    scenario: &'a str,
    figure: Figure,
    limit: f64,
    about: String,
    own: f64,
}

impl Report<'_> {
    fn of(&self, scenario: &str, peer: Peer) -> impl Iterator<Item = &Measurement> {
        self.measured.iter().filter(move |measured| measured.scenario == scenario && measured.peer == peer)
    }

    /// The median of a figure over all rounds.
    fn figure(&self, scenario: &str, peer: Peer, figure: Figure) -> Option<f64> {
        let rounds = self.of(scenario, peer).filter_map(|measured| measured.result.as_ref().ok());
        median(rounds.filter_map(|figures| figures.iter().find(|(of, _)| *of == figure).map(|(_, value)| *value)))
    }

    /// The table of one scenario, as Markdown.
    pub(crate) fn table(&self, scenario: &Scenario) -> String {
        let mine = self.measured.iter().filter(|measured| measured.scenario == scenario.name);
        let mut figures: Vec<Figure> =
            mine.filter_map(|measured| measured.result.as_ref().ok()).flatten().map(|(figure, _)| *figure).collect();
        figures.sort_unstable();
        figures.dedup();
        let mut text = format!("### {}: {}\n\n| peer |", scenario.name, scenario.about);
        figures.iter().for_each(|figure| _ = write!(text, " {} |", figure.title()));
        text += " exeat ÷ peer |\n|---|";
        figures.iter().for_each(|_| text += "---:|");
        text += "---:|\n";
        let own = self.figure(scenario.name, Peer::Exeat, scenario.headline);
        for peer in Peer::ALL {
            if self.of(scenario.name, peer).next().is_none() {
                continue;
            }
            if let Some(error) = self.of(scenario.name, peer).find_map(|measured| measured.result.as_ref().err()) {
                let error: String = error.chars().map(|c| if c.is_control() || c == '|' { ' ' } else { c }).collect();
                _ = writeln!(text, "| {} | failed: {error} |", peer.name());
                continue;
            }
            _ = write!(text, "| {} |", peer.name());
            for figure in &figures {
                let value = self.figure(scenario.name, peer, *figure).map_or_else(|| "–".to_owned(), digits);
                _ = write!(text, " {value} |");
            }
            let ratio = self.figure(scenario.name, peer, scenario.headline).zip(own).map(|(peer, own)| own / peer);
            _ = writeln!(text, " {} |", ratio.map_or_else(|| "–".to_owned(), digits));
        }
        if let Some((other, ratio)) = self.beside(scenario) {
            _ = writeln!(text, "\nexeat ÷ exeat in {other}: {}", digits(ratio));
        }
        text
    }

    /// The headline of a scenario, as a share of exeat's own in the scenario that it is set beside.
    fn beside(&self, scenario: &Scenario) -> Option<(&'static str, f64)> {
        let other = scenario.beside?;
        let [own, base] = [scenario.name, other].map(|name| self.figure(name, Peer::Exeat, scenario.headline));
        Some((other, own? / base?))
    }

    /// What exeat is held to, as far as it was measured.
    fn held<'s>(&'s self, scenarios: &'s [Scenario]) -> impl Iterator<Item = Held<'s>> {
        let bounds = scenarios.iter().flat_map(|scenario| scenario.bounds.iter().map(move |bound| (scenario, *bound)));
        bounds.filter_map(|(scenario, bound)| {
            let (figure, limit, about) = match bound {
                Bound::Peer(factor, peer) => {
                    let value = self.figure(scenario.name, peer, scenario.headline)?;
                    (scenario.headline, value * factor, format!("{factor} × {}", peer.name()))
                }
                Bound::Fixed(figure, value) => (figure, value, "fixed".to_owned()),
            };
            let own = self.figure(scenario.name, Peer::Exeat, figure)?;
            Some(Held { scenario: scenario.name, figure, limit, about, own })
        })
    }

    /// The table of what exeat is held to, and whether it holds.
    pub(crate) fn bounds(&self, scenarios: &[Scenario]) -> String {
        let mut text = String::new();
        for Held { scenario, figure, limit, about, own } in self.held(scenarios) {
            if text.is_empty() {
                text += "| scenario | figure | bound | exeat | holds |\n|---|---|---:|---:|---|\n";
            }
            let holds = if own <= limit { "yes" } else { "no" };
            let (title, limit, own) = (figure.title(), digits(limit), digits(own));
            _ = writeln!(text, "| {scenario} | {title} | {limit} ({about}) | {own} | {holds} |");
        }
        text
    }

    /// Every measurement, and what follows from them, for programs.
    pub(crate) fn json(&self, machine: &str, scenarios: &[Scenario]) -> Value {
        let measured: Vec<Value> = self
            .measured
            .iter()
            .map(|Measurement { scenario, peer, round, result }| {
                let figures = result.as_ref().map(|figures| object(figures));
                json!({
                    "scenario": scenario,
                    "peer": peer.name(),
                    "round": round,
                    "figures": figures.as_ref().ok(),
                    "error": figures.as_ref().err(),
                })
            })
            .collect();
        let held = self.held(scenarios).map(|Held { scenario, figure, limit, about, own }| {
            let (figure, holds) = (figure.title(), own <= limit);
            json!({ "scenario": scenario, "figure": figure, "bound": limit, "of": about, "exeat": own, "holds": holds })
        });
        let beside = scenarios.iter().filter_map(|scenario| {
            let (other, ratio) = self.beside(scenario)?;
            Some(json!({ "scenario": scenario.name, "of": other, "ratio": ratio }))
        });
        let grown = self.grown.iter().flat_map(|Grown { series, result }| match result {
            Ok(steps) => steps
                .iter()
                .map(|step| json!({ "scenario": series.name, "size": step.size, "figures": object(&step.figures) }))
                .collect(),
            Err(error) => vec![json!({ "scenario": series.name, "error": error })],
        });
        json!({
            "machine": machine,
            "measurements": measured,
            "bounds": held.collect::<Vec<_>>(),
            "beside": beside.collect::<Vec<_>>(),
            "growth": grown.collect::<Vec<_>>(),
        })
    }
}

/// The table of a series, as Markdown.
pub(crate) fn growth(Grown { series, result }: &Grown) -> String {
    let mut text = format!("### {}: {}\n\n", series.name, series.about);
    let steps = match result {
        Ok(steps) => steps,
        Err(error) => return text + &format!("failed: {error}\n"),
    };
    let mut figures: Vec<Figure> = steps.iter().flat_map(|step| &step.figures).map(|(figure, _)| *figure).collect();
    figures.sort_unstable();
    figures.dedup();
    let cells = |cell: &dyn Fn(Figure) -> String| figures.iter().map(|&figure| cell(figure)).collect::<String>();
    _ = writeln!(text, "| {} |{}", series.unit, cells(&|figure| format!(" {} |", figure.title())));
    _ = writeln!(text, "|---:|{}", cells(&|_| "---:|".to_owned()));
    for step in steps {
        let value = |of| step.figures.iter().find(|(figure, _)| *figure == of).map(|(_, value)| digits(*value));
        let row = cells(&|figure| format!(" {} |", value(figure).unwrap_or_else(|| "–".to_owned())));
        _ = writeln!(text, "| {} |{row}", step.size);
    }
    text
}

/// Figures by their titles.
fn object(figures: &[(Figure, f64)]) -> Map<String, Value> {
    figures.iter().map(|(figure, value)| (figure.title().to_owned(), json!(value))).collect()
}

/// A number with three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::growth::{ALL, Step};
    use super::super::scenario;
    use super::*;

    fn measurement(scenario: &'static str, peer: Peer, cpu: f64) -> Measurement {
        Measurement { scenario, peer, round: 0, result: Ok(vec![(Figure::Cpu, cpu)]) }
    }

    #[test]
    fn a_bound_is_shown_where_both_sides_of_it_were_measured() {
        let measured = [
            measurement("http_keepalive", Peer::Exeat, 12.0),
            measurement("http_keepalive", Peer::Haproxy, 10.0),
            measurement("mitm_keepalive", Peer::Exeat, 20.0),
            measurement("mitm_keepalive", Peer::Squid, 50.0),
            measurement("mcp_call", Peer::Exeat, 30.0),
        ];
        let report = Report { measured: &measured, grown: &[] };
        let table = report.bounds(&scenario::ALL);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| http_keepalive | CPU µs/op | 10.0 (1 × haproxy) | 12.0 | no |",
                "| mitm_keepalive | CPU µs/op | 25.0 (0.5 × squid) | 20.0 | yes |"
            ]
        );
        let json = report.json("a machine", &scenario::ALL);
        assert_eq!(json["bounds"][1]["holds"], true);
        assert_eq!(json["beside"], json!([{ "scenario": "mcp_call", "of": "mitm_keepalive", "ratio": 1.5 }]));
    }

    #[test]
    fn a_series_is_a_row_for_each_size() {
        let step = |size, figures| Step { size, figures };
        let steps = vec![step(0, vec![(Figure::Rss, 9.5)]), step(500, vec![(Figure::Rss, 11.5), (Figure::Each, 4.1)])];
        let [series, ..] = ALL;
        let table = growth(&Grown { series, result: Ok(steps) });
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            ["| rules | RSS MiB | KiB each |", "|---:|---:|---:|", "| 0 | 9.50 | – |", "| 500 | 11.5 | 4.10 |"]
        );
    }
}
