//! The forms in which a server may send a credential back.

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::MIN_SECRET;

type Secret = Zeroizing<Vec<u8>>;

const CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// All forms of what is secret in a field value.
pub(super) fn of_field(value: &[u8]) -> Vec<Secret> {
    secrets(value).iter().filter(|secret| secret.len() >= MIN_SECRET).flat_map(|secret| of_secret(secret)).collect()
}

/// What is secret in a field value: what stands behind its scheme, the user and the password in `Basic`, the values of
/// cookies, or all of it.
fn secrets(value: &[u8]) -> Vec<Secret> {
    let owned = |secret: &[u8]| Zeroizing::new(secret.to_vec());
    let space = value.iter().position(|&byte| byte == b' ');
    let (scheme, rest) = value.split_at(space.unwrap_or(0));
    let is_scheme =
        !scheme.is_empty() && scheme.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-_+.".contains(&byte));
    let secret = if is_scheme { rest.trim_ascii() } else { value.trim_ascii() };
    let mut secrets = vec![owned(secret)];
    if scheme.eq_ignore_ascii_case(b"Basic")
        && let Ok(pair) = engine(&STANDARD).decode(secret).map(Zeroizing::new)
    {
        let password = pair.iter().position(|&byte| byte == b':').and_then(|colon| pair.get(colon + 1..));
        secrets.extend(password.map(owned));
        secrets.push(pair);
    }
    // A list of parameters: cookies, and schemes that have some. Their names are no secrets.
    if secret.contains(&b'=') {
        let parameters = secret.split(|&byte| byte == b';' || byte == b',');
        let values = parameters.filter_map(|parameter| {
            let equals = parameter.iter().position(|&byte| byte == b'=')?;
            Some(parameter.get(equals + 1..)?.trim_ascii())
        });
        // Padding of base64 is no value.
        secrets.extend(values.filter(|value| !value.iter().all(|&byte| byte == b'=')).map(|value| {
            owned(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
        }));
    }
    secrets
}

fn of_secret(secret: &[u8]) -> Vec<Secret> {
    let mut forms = vec![Zeroizing::new(secret.to_vec())];
    for alphabet in [&STANDARD, &URL_SAFE] {
        forms.extend((0..3).map(|offset| in_base64(secret, offset, alphabet)));
    }
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    // As `encodeURIComponent` leaves it.
    let component = |byte: u8| unreserved(byte) || b"!'()*".contains(&byte);
    let form = |byte: u8| byte.is_ascii_alphanumeric() || b"*-._".contains(&byte);
    for hex in [b"0123456789ABCDEF", b"0123456789abcdef"] {
        forms.push(percent_encoded(secret, unreserved, b"%20", hex));
        forms.push(percent_encoded(secret, component, b"%20", hex));
        forms.push(percent_encoded(secret, form, b"+", hex));
        for escaped in [&b""[..], b"/", b"<>&", b"<>&'+", b"<>&'/"] {
            forms.push(in_json(secret, escaped, hex));
        }
    }
    forms
}

fn engine(alphabet: &Alphabet) -> GeneralPurpose {
    GeneralPurpose::new(alphabet, CONFIG)
}

/// The characters of base64 that depend on the secret alone when it stands `offset` bytes behind a border of three.
/// Those at the ends that share their bits with neighbours are left out; they say nothing of more than one byte.
fn in_base64(secret: &[u8], offset: usize, alphabet: &Alphabet) -> Secret {
    let mut shifted = Zeroizing::new(vec![0; offset]);
    shifted.extend_from_slice(secret);
    let encoded = Zeroizing::new(engine(alphabet).encode(&*shifted));
    let (from, to) = ((offset * 8).div_ceil(6), shifted.len() * 8 / 6);
    Zeroizing::new(encoded.as_bytes().get(from..to).unwrap_or_default().to_vec())
}

fn percent_encoded(secret: &[u8], kept: impl Fn(u8) -> bool, space: &[u8], hex: &[u8; 16]) -> Secret {
    let mut form = Zeroizing::new(Vec::with_capacity(3 * secret.len()));
    for &byte in secret {
        match byte {
            b' ' => form.extend_from_slice(space),
            byte if kept(byte) => form.push(byte),
            byte => {
                form.push(b'%');
                push_hex(&mut form, byte, hex);
            }
        }
    }
    form
}

/// As a JSON writer escapes it (RFC 8259 section 7): what has to be, `/` with a backslash if it is in `escaped`, and as
/// `\\u00XX` the others in there and what is not ASCII.
fn in_json(secret: &[u8], escaped: &[u8], hex: &[u8; 16]) -> Secret {
    let mut form = Zeroizing::new(Vec::with_capacity(6 * secret.len()));
    let as_unit = |form: &mut Secret, unit: u16| {
        form.extend_from_slice(b"\\u");
        unit.to_be_bytes().into_iter().for_each(|byte| push_hex(form, byte, hex));
    };
    let text = String::from_utf8_lossy(secret);
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                form.push(b'\\');
                form.push(character as u8);
            }
            '/' if escaped.contains(&b'/') => form.extend_from_slice(b"\\/"),
            '\t' => form.extend_from_slice(b"\\t"),
            character if character.is_ascii() && !escaped.contains(&(character as u8)) => form.push(character as u8),
            character => {
                let mut units = [0; 2];
                character.encode_utf16(&mut units).iter().for_each(|&unit| as_unit(&mut form, unit));
            }
        }
    }
    form
}

fn push_hex(form: &mut Secret, byte: u8, hex: &[u8; 16]) {
    form.extend([byte >> 4, byte & 15].into_iter().filter_map(|digit| hex.get(usize::from(digit))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(value: &str) -> Vec<String> {
        of_field(value.as_bytes()).iter().map(|form| String::from_utf8(form.to_vec()).unwrap()).collect()
    }

    fn finds(value: &str, echoed: &str) -> bool {
        forms(value).iter().any(|form| echoed.contains(form.as_str()))
    }

    #[test]
    fn the_secret_is_found_without_its_scheme() {
        for (value, echoed) in [
            ("Bearer s3cret-token", "you sent s3cret-token."),
            ("s3cret-token", "s3cret-token"),
            ("Basic dXNlcjpwYXNzd29yZA==", "password"),
            ("Basic dXNlcjpwYXNzd29yZA==", "user:password"),
            ("basic dXNlcjpwYXNzd29yZA", "dXNlcjpwYXNzd29yZA=="),
            ("sid=s3cret-session; theme=dark-mode", "s3cret-session"),
            ("Digest username=\"u\", response=\"0123456789abcdef\"", "0123456789abcdef"),
        ] {
            assert!(finds(value, echoed), "{value} in {echoed}");
        }
        assert!(forms("Bearer short").is_empty() && forms("short").is_empty());
    }

    #[test]
    fn base64_is_found_wherever_the_secret_stands_in_it() {
        let value = "Bearer s3cret>token?\u{fc}~";
        let secret = &value[7..];
        for before in ["", "a", "ab", "abc", "user:", "{\"token\":\""] {
            for after in ["", "!", "\"}", "..."] {
                let text = format!("{before}{secret}{after}");
                for alphabet in [&STANDARD, &URL_SAFE] {
                    let echoed = engine(alphabet).encode(&text);
                    assert!(finds(value, &echoed), "{text} as {echoed}");
                }
            }
        }
    }

    #[test]
    fn escapes_are_those_of_common_writers() {
        let value = "a/b+c d\"e\\f<g>&h'\u{e9}=!(x)";
        for echoed in [
            // serde_json, JSON.stringify; PHP; Go; Python; PHP with all its flags.
            "a/b+c d\\\"e\\\\f<g>&h'\\u00e9=!(x)",
            "a\\/b+c d\\\"e\\\\f<g>&h'\\u00e9=!(x)",
            "a/b+c d\\\"e\\\\f\\u003cg\\u003e\\u0026h'\\u00e9=!(x)",
            "a\\/b+c d\\\"e\\\\f\\u003Cg\\u003E\\u0026h\\u0027\\u00E9=!(x)",
            // RFC 3986, encodeURIComponent, a form.
            "a%2Fb%2Bc%20d%22e%5Cf%3Cg%3E%26h%27%C3%A9%3D%21%28x%29",
            "a%2fb%2bc%20d%22e%5cf%3cg%3e%26h%27%c3%a9%3d%21%28x%29",
            "a%2Fb%2Bc%20d%22e%5Cf%3Cg%3E%26h'%C3%A9%3D!(x)",
            "a%2Fb%2Bc+d%22e%5Cf%3Cg%3E%26h%27%C3%A9%3D%21%28x%29",
        ] {
            let found = of_secret(value.as_bytes()).iter().any(|form| form.as_slice() == echoed.as_bytes());
            assert!(found, "{echoed}");
        }
    }
}
