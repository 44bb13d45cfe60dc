use super::*;

#[test]
fn urls_read() {
    assert_eq!(Target::parse("https://h.example").unwrap().path(), "/");
}
