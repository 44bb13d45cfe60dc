//! The closed list of diagnostic codes.

use std::fmt;

use super::Severity;

macro_rules! codes {
    ($($name:ident = $code:literal, $summary:literal;)*) => {
        /// A stable diagnostic code: `E…` is an error, `W…` a warning. A code is never given to another meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $summary] $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it is printed, such as `E0101`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// What the code means, in one line.
            #[must_use]
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$name => $summary,)* }
            }
        }
    };
}

codes! {
    Syntax = "E0001", "the file is not well-formed TOML, YAML or JSON";
    DuplicateKey = "E0002", "a key is written twice";
    UnknownKey = "E0003", "a key that nothing reads";
    WrongType = "E0004", "a value of another type than the key takes";
    MissingKey = "E0005", "a required key is missing";
    BadValue = "E0006", "a value outside what the key takes";
    TwoSpellings = "E0007", "a key and its alias are both written";
    TooLarge = "E0008", "the file is larger than any manifest or config";
    TooDeep = "E0009", "values are nested too deep";
    YamlFeature = "E0010", "a feature of YAML that is not read: anchor, alias, merge key, tag, further document";
}

impl Code {
    /// Error or warning, from the code's first letter.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self.as_str().as_bytes() {
            [b'W', ..] => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = HashSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} is used twice");
            assert!(text.len() == 5 && (text.starts_with('E') || text.starts_with('W')), "{text}");
            assert!(text.bytes().skip(1).all(|byte| byte.is_ascii_digit()), "{text}");
        }
    }
}
