//! Times as they stand in lines.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// A time as it is written.
type Text = [u8; 27];

/// Writes times in RFC 3339, to the microsecond. The text of a second is made once.
#[derive(Debug)]
pub(super) struct Clock {
    second: u64,
    text: Text,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { second: 0, text: *b"1970-01-01T00:00:00.000000Z" }
    }

    /// Writes what time it is.
    pub(super) fn write_now(&mut self, out: &mut Vec<u8>) {
        self.write(SystemTime::now(), out);
    }

    fn write(&mut self, now: SystemTime, out: &mut Vec<u8>) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() {
            self.second = since.as_secs();
            self.text = second(self.second);
        }
        let micros = since.subsec_micros();
        let [.., a, b, c, d, e, f, _] = &mut self.text;
        // Six digits, each a remainder of ten.
        [*a, *b, *c, *d, *e, *f] = [100_000, 10_000, 1_000, 100, 10, 1].map(|unit| b'0' + (micros / unit % 10) as u8);
        out.extend_from_slice(&self.text);
    }
}

/// The text of a second since the epoch. One that RFC 3339 has no four digits for is the first.
fn second(second: u64) -> Text {
    let date = i64::try_from(second).ok().and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok());
    let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = date.to_hms();
    let month = u8::from(month);
    let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000000Z");
    text.as_bytes().try_into().unwrap_or(Clock::new().text)
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
