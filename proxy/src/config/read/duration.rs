//! Durations as the config spells them: a whole number and a unit, `"500ms"`, `"10s"`, `"10m"`, `"1h"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Value, quoted};

/// The units and how many milliseconds one of each lasts, the longest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DurationError {
    /// There are no digits in front.
    #[error("expected a whole number and a unit, found {}", quoted(.0))]
    NoNumber(String),
    /// There is nothing behind the digits.
    #[error("expected a unit behind the number, found {} alone", quoted(.0))]
    NoUnit(String),
    /// What stands behind the digits is no unit.
    #[error("expected one of the units `ms`, `s`, `m`, `h`, found {}", quoted(.0))]
    UnknownUnit(String),
    /// More milliseconds than 64 bits count.
    #[error("{} is longer than can be counted", quoted(.0))]
    TooLong(String),
}

/// Reads a duration; nothing may stand around or between the number and its unit.
pub(super) fn parse(text: &str) -> Result<Duration, DurationError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    if number.is_empty() {
        return Err(DurationError::NoNumber(text.to_owned()));
    }
    if unit.is_empty() {
        return Err(DurationError::NoUnit(text.to_owned()));
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(DurationError::UnknownUnit(unit.to_owned()));
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*scale));
    millis.map(Duration::from_millis).ok_or_else(|| DurationError::TooLong(text.to_owned()))
}

/// A duration in its shortest spelling; parts of a millisecond are dropped.
pub(super) fn spelled(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let fits = UNITS.iter().find(|(_, scale)| millis.is_multiple_of(u128::from(*scale)));
    fits.map_or_else(|| format!("{millis}ms"), |(unit, scale)| format!("{}{unit}", millis / u128::from(*scale)))
}

/// Reads a key's duration within `range`; what does not fit is reported and reads as nothing.
pub(super) fn field(field: &Field<'_>, range: &RangeInclusive<Duration>) -> Option<Duration> {
    if let Value::Integer(number) = field.node().value {
        let message = format!("{}: expected a duration, found an integer", quoted(field.path()));
        field.report(Code::WrongType, message, format!("write the number with its unit, such as \"{number}s\""));
        return None;
    }
    let text = field.str()?;
    match parse(text.value) {
        Ok(duration) if range.contains(&duration) => Some(duration),
        Ok(duration) => {
            let (low, high) = (spelled(*range.start()), spelled(*range.end()));
            let message = format!("{} is {}, outside {low} to {high}", quoted(field.path()), spelled(duration));
            field.report(Code::BadValue, message, format!("write a duration from \"{low}\" to \"{high}\""));
            None
        }
        Err(error) => {
            let help = "write a whole number and one of `ms`, `s`, `m`, `h`, such as \"500ms\" or \"10m\"";
            field.report(Code::BadValue, format!("{}: {error}", quoted(field.path())), help);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_unit() {
        for (text, millis) in
            [("500ms", 500), ("0s", 0), ("10s", 10_000), ("10m", 600_000), ("1h", 3_600_000), ("007s", 7_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else_and_says_why() {
        use DurationError::{NoNumber, NoUnit, TooLong, UnknownUnit};
        let own = str::to_owned;
        for (text, error) in [
            ("", NoNumber(own(""))),
            ("s", NoNumber(own("s"))),
            ("-1s", NoNumber(own("-1s"))),
            (" 1s", NoNumber(own(" 1s"))),
            ("10", NoUnit(own("10"))),
            ("10 s", UnknownUnit(own(" s"))),
            ("10s ", UnknownUnit(own("s "))),
            ("1.5s", UnknownUnit(own(".5s"))),
            ("1h30m", UnknownUnit(own("h30m"))),
            ("10S", UnknownUnit(own("S"))),
            ("2d", UnknownUnit(own("d"))),
            ("٣s", NoNumber(own("٣s"))),
            ("18446744073709551616ms", TooLong(own("18446744073709551616ms"))),
            ("18446744073709551615h", TooLong(own("18446744073709551615h"))),
        ] {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn spells_what_it_reads() {
        for text in ["0s", "1ms", "1500ms", "90s", "10m", "1h", "36h"] {
            assert_eq!(spelled(parse(text).unwrap()), text);
        }
        assert_eq!(spelled(Duration::from_micros(1_500)), "1ms");
    }
}
