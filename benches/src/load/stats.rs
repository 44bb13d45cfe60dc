//! Counting operations and the time each took.

use std::time::Duration;

/// Buckets for each doubling: a value is known to 1/64 of itself.
const PER_DOUBLING: usize = 64;

/// How often each latency occurred, with buckets that grow with the value.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; PER_DOUBLING * 64], total: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub(crate) fn record(&mut self, value: Duration) {
        let nanoseconds = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanoseconds)) {
            *count += 1;
        }
        self.total += 1;
    }

    /// The value that a share of all values does not exceed, in microseconds; none without values.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle(at) / 1000.0)
    }
}

fn bucket(value: u64) -> usize {
    if value < PER_DOUBLING as u64 {
        return value as usize;
    }
    let doubling = value.ilog2() as usize - PER_DOUBLING.ilog2() as usize;
    (doubling + 1) * PER_DOUBLING + (value >> doubling) as usize - PER_DOUBLING
}

fn middle(bucket: usize) -> f64 {
    if bucket < PER_DOUBLING {
        return bucket as f64;
    }
    let doubling = (bucket / PER_DOUBLING - 1) as i32;
    ((bucket % PER_DOUBLING + PER_DOUBLING) as f64 + 0.5) * 2f64.powi(doubling)
}

/// What the clients of one run did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Operations that were completed.
    pub(crate) operations: u64,
    /// Bytes that a bulk client took.
    pub(crate) bytes: u64,
    /// How long each operation took; for events, how long each was on its way.
    pub(crate) latency: Histogram,
}

impl Tally {
    /// Counts one operation.
    pub(crate) fn operation(&mut self, took: Duration) {
        self.operations += 1;
        self.latency.record(took);
    }
}

/// The middle of some values; of an even number the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = *values.get(half)?;
    let lower = if values.len().is_multiple_of(2) { *values.get(half - 1)? } else { upper };
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_within_a_64th_of_its_values() {
        for value in (0..10_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX / 3]) {
            let shown = middle(bucket(value));
            assert!((shown - value as f64).abs() <= value as f64 / 64.0, "{value} {shown}");
        }
    }

    #[test]
    fn quantiles_are_the_ranked_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=100).for_each(|value| histogram.record(Duration::from_micros(value)));
        for (share, expected) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)] {
            let value = histogram.quantile(share).unwrap();
            assert!((value - expected).abs() < expected / 50.0, "{share} {value}");
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([]), None);
    }
}
