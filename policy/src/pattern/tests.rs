use super::*;

#[test]
fn patterns_have_one_spelling() {
    for (text, canonical) in [
        ("Example.COM.", "example.com"),
        (" *.bücher.example ", "*.xn--bcher-kva.example"),
        ("2001:DB8::1", "[2001:db8::1]"),
        ("https://EXAMPLE.com", "https://example.com/"),
    ] {
        assert_eq!(Pattern::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}
