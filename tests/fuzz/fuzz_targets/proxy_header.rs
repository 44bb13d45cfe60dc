#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| exeat::fuzzing::proxy_header(data));
