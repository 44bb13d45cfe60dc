//! Benches of exeat; they stand in `benches/`, and nothing is built from here.
