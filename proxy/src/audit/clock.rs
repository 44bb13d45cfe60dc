//! Times as they stand in lines.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// Writes times in RFC 3339, to the microsecond. The text of a second is made once.
#[derive(Debug, Default)]
pub(super) struct Clock {
    second: u64,
    text: String,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { second: 0, text: String::new() }
    }

    /// Writes what time it is.
    pub(super) fn write_now(&mut self, out: &mut Vec<u8>) {
        self.write(SystemTime::now(), out);
    }

    fn write(&mut self, now: SystemTime, out: &mut Vec<u8>) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() || self.text.is_empty() {
            self.second = since.as_secs();
            let seconds = i64::try_from(self.second).unwrap_or(i64::MAX);
            let date = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
            let (year, month, day) = date.to_calendar_date();
            let (hour, minute, second) = date.to_hms();
            self.text.clear();
            let month = u8::from(month);
            let _ = write!(self.text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        }
        out.extend_from_slice(self.text.as_bytes());
        let micros = since.subsec_micros();
        out.push(b'.');
        // Six digits, each a remainder of ten.
        out.extend([100_000, 10_000, 1_000, 100, 10, 1].map(|unit| b'0' + (micros / unit % 10) as u8));
        out.push(b'Z');
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_to_the_microsecond() {
        let mut clock = Clock::default();
        for (since, expected) in [
            (Duration::ZERO, "1970-01-01T00:00:00.000000Z"),
            (Duration::new(1_796_027_460, 945_818_999), "2026-11-30T08:31:00.945818Z"),
            (Duration::new(1_796_027_460, 1_000), "2026-11-30T08:31:00.000001Z"),
            (Duration::new(4_107_542_399, 0), "2100-02-28T23:59:59.000000Z"),
        ] {
            let mut out = Vec::new();
            clock.write(UNIX_EPOCH + since, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
