//! The tables.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::peer::Peer;
use super::runner::Measurement;
use super::scenario::{Bound, Figure, Scenario};
use super::stats::median;

/// All measurements, and the medians over their rounds.
pub(crate) struct Report<'a>(pub(crate) &'a [Measurement]);

impl Report<'_> {
    fn of(&self, scenario: &str, peer: Peer) -> impl Iterator<Item = &Measurement> {
        self.0.iter().filter(move |measured| measured.scenario == scenario && measured.peer == peer)
    }

    /// The median of a figure over all rounds.
    fn figure(&self, scenario: &str, peer: Peer, figure: Figure) -> Option<f64> {
        let rounds = self.of(scenario, peer).filter_map(|measured| measured.result.as_ref().ok());
        median(rounds.filter_map(|figures| figures.iter().find(|(of, _)| *of == figure).map(|(_, value)| *value)))
    }

    /// The table of one scenario, as Markdown.
    pub(crate) fn table(&self, scenario: &Scenario) -> String {
        let mine = self.0.iter().filter(|measured| measured.scenario == scenario.name);
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
        text
    }

    /// What exeat is held to, and whether it holds.
    pub(crate) fn bounds(&self, scenarios: &[Scenario]) -> String {
        let mut text = "| scenario | figure | bound | exeat | holds |\n|---|---|---:|---:|---|\n".to_owned();
        let mut some = false;
        for scenario in scenarios {
            for bound in scenario.bounds {
                let (figure, limit, about) = match *bound {
                    Bound::Peer(factor, peer) => {
                        let value = self.figure(scenario.name, peer, scenario.headline);
                        (scenario.headline, value.map(|value| value * factor), format!("{factor} × {}", peer.name()))
                    }
                    Bound::Fixed(figure, value) => (figure, Some(value), "fixed".to_owned()),
                };
                let own = self.figure(scenario.name, Peer::Exeat, figure);
                let (Some(limit), Some(own)) = (limit, own) else { continue };
                let holds = if own <= limit { "yes" } else { "no" };
                let (title, limit, own) = (figure.title(), digits(limit), digits(own));
                _ = writeln!(text, "| {} | {title} | {limit} ({about}) | {own} | {holds} |", scenario.name);
                some = true;
            }
        }
        if some { text } else { String::new() }
    }

    /// Every measurement, for programs.
    pub(crate) fn json(&self, machine: &str) -> Value {
        let measured: Vec<Value> = self
            .0
            .iter()
            .map(|Measurement { scenario, peer, round, result }| {
                let figures = result.as_ref().map(|figures| {
                    let pairs = figures.iter().map(|(figure, value)| (figure.title().to_owned(), json!(value)));
                    pairs.collect::<Map<_, _>>()
                });
                json!({
                    "scenario": scenario,
                    "peer": peer.name(),
                    "round": round,
                    "figures": figures.as_ref().ok(),
                    "error": figures.as_ref().err(),
                })
            })
            .collect();
        json!({ "machine": machine, "measurements": measured })
    }
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
