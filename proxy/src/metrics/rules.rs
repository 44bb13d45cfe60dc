//! `rule_hits_total`: read from the table of the policy in force when somebody scrapes.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, LabelPair, Metric, MetricFamily, MetricType};

use crate::hits::{List, RuleHits};

/// How many rules have a series of their own; the rest of a list is summed up as `other`.
const SHOWN: usize = 1000;
/// The name, with the prefix that the registry puts in front.
const NAME: &str = "rule_hits_total";
const HELP: &str = "Decisions by the rule that made them; `rule` is its position in the list, from 0.";

/// Shows the counts of one policy's rules.
#[derive(Clone, Debug)]
pub(super) struct RuleCollector {
    shown: Arc<ArcSwapOption<RuleHits>>,
    desc: Desc,
}

impl RuleCollector {
    /// A collector that shows nothing yet.
    pub(super) fn new() -> prometheus::Result<Self> {
        let labels = ["layer", "list", "rule"].map(str::to_owned).to_vec();
        let desc = Desc::new(NAME.to_owned(), HELP.to_owned(), labels, std::collections::HashMap::new())?;
        Ok(Self { shown: Arc::default(), desc })
    }

    /// Shows these counts from now on.
    pub(super) fn show(&self, hits: Arc<RuleHits>) {
        self.shown.store(Some(hits));
    }
}

impl Collector for RuleCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(NAME.to_owned());
        family.set_help(HELP.to_owned());
        family.set_field_type(MetricType::COUNTER);
        let shown = self.shown.load();
        let series = shown.iter().flat_map(|hits| hits.lists().iter().flat_map(|list| series(hits, list)));
        family.set_metric(merged(series));
        vec![family]
    }
}

/// The series of one list: the label `rule`, and the count.
fn series<'h>(hits: &'h RuleHits, list: &'h List) -> impl Iterator<Item = (&'h List, String, u64)> {
    let own = SHOWN.saturating_sub(list.first).min(list.len);
    let count = move |index| hits.of(list.first + index);
    let others = (own < list.len).then(|| (list, "other".to_owned(), (own..list.len).map(count).sum()));
    (0..own).map(move |index| (list, index.to_string(), count(index))).chain(others)
}

/// Makes metrics of series. Layers may have one name, and a series may be there only once.
fn merged<'h>(series: impl Iterator<Item = (&'h List, String, u64)>) -> Vec<Metric> {
    let mut sums = std::collections::BTreeMap::new();
    for (list, rule, count) in series {
        *sums.entry((&*list.layer, list.kind, rule)).or_insert(0) += count;
    }
    let metric = |((layer, kind, rule), count): ((&str, exeat_policy::ListKind, String), u64)| {
        let labels = [("layer", layer), ("list", kind.as_str()), ("rule", &rule)].map(|(name, value)| {
            let mut label = LabelPair::default();
            label.set_name(name.to_owned());
            label.set_value(value.to_owned());
            label
        });
        let mut counter = Counter::default();
        // Counts beyond 2^53 lose their last digits, as all numbers of the format do.
        counter.set_value(count as f64);
        let mut metric = Metric::from_label(labels.to_vec());
        metric.set_counter(counter);
        metric
    };
    sums.into_iter().map(metric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hits::tests::policy;

    #[test]
    fn the_first_thousand_rules_have_series_and_the_rest_is_summed_up() {
        let names: Vec<String> = (0..1200).map(|number| format!("h{number}.test")).collect();
        let patterns: Vec<&str> = names.iter().map(String::as_str).collect();
        let policy = policy(&[("org", &patterns, &["bad.test", "worse.test"]), ("agent", &["a.test"], &[])]);
        let hits = Arc::new(RuleHits::new(&policy));
        for number in [0, 999, 1000, 1199, 1200, 1202] {
            hits.count(policy.rule(number).unwrap());
        }
        let collector = RuleCollector::new().unwrap();
        assert!(collector.collect()[0].get_metric().is_empty());
        collector.show(hits);
        let family = collector.collect().remove(0);
        assert_eq!(family.get_metric().len(), 1000 + 3);
        let value = |labels: [&str; 3]| {
            let is = |metric: &&Metric| metric.get_label().iter().map(LabelPair::value).eq(labels);
            family.get_metric().iter().find(is).map(|metric| metric.get_counter().get_value())
        };
        assert_eq!(value(["org", "allowed", "0"]), Some(1.0));
        assert_eq!(value(["org", "allowed", "1"]), Some(0.0));
        assert_eq!(value(["org", "allowed", "999"]), Some(1.0));
        assert_eq!(value(["org", "allowed", "1000"]), None);
        assert_eq!(value(["org", "allowed", "other"]), Some(2.0));
        assert_eq!(value(["org", "blocked", "other"]), Some(1.0));
        assert_eq!(value(["agent", "allowed", "other"]), Some(1.0));
    }

    #[test]
    fn layers_of_one_name_share_their_series() {
        let policy = policy(&[("a", &["x.test"], &[]), ("a", &["y.test"], &[])]);
        let hits = Arc::new(RuleHits::new(&policy));
        policy.rules().for_each(|rule| hits.count(rule));
        let collector = RuleCollector::new().unwrap();
        collector.show(hits);
        let family = collector.collect().remove(0);
        let values: Vec<f64> = family.get_metric().iter().map(|metric| metric.get_counter().get_value()).collect();
        assert_eq!(values, [2.0]);
    }
}
