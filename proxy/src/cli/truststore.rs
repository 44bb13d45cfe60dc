//! A trust store for Java: certificates in a PKCS #12 file (RFC 7292).
//!
//! Java replaces its own roots by those of the file that `javax.net.ssl.trustStore` names. It takes a certificate for a
//! trusted one if its bag has an attribute of Oracle's that names what it is trusted for. Certificates are no secret and
//! the file's place is trusted, so it is neither encrypted nor authenticated, and is read without a password.

use rustls_pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const BMP_STRING: u8 = 0x1E;
/// `[0] EXPLICIT`.
const CONTEXT_0: u8 = 0xA0;

/// id-data, 1.2.840.113549.1.7.1 (RFC 5652 section 4).
const DATA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 7, 1];
/// certBag, 1.2.840.113549.1.12.10.1.3 (RFC 7292 section 4.2.3).
const CERT_BAG: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 12, 10, 1, 3];
/// x509Certificate, 1.2.840.113549.1.9.22.1.
const X509: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 22, 1];
/// friendlyName, 1.2.840.113549.1.9.20 (RFC 2985 section 5.5.1).
const FRIENDLY_NAME: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 20];
/// Oracle's trustedKeyUsage, 2.16.840.1.113894.746875.1.1.
const TRUSTED_KEY_USAGE: &[u8] = &[0x60, 0x86, 0x48, 1, 0x86, 0xF9, 0x66, 0xAD, 0xCA, 0x7B, 1, 1];
/// anyExtendedKeyUsage, 2.5.29.37.0 (RFC 5280 section 4.2.1.12).
const ANY_USAGE: &[u8] = &[0x55, 0x1D, 0x25, 0];

/// A store of these certificates.
pub(super) fn of(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let bags: Vec<u8> = certificates.iter().enumerate().flat_map(|(number, cert)| bag(number, cert)).collect();
    let contents = der(SEQUENCE, &data(&der(SEQUENCE, &bags)));
    der(SEQUENCE, &[der(INTEGER, &[3]), data(&contents)].concat())
}

/// A ContentInfo that holds bytes as they are.
fn data(content: &[u8]) -> Vec<u8> {
    let content = der(CONTEXT_0, &der(OCTET_STRING, content));
    der(SEQUENCE, &[der(OBJECT_IDENTIFIER, DATA), content].concat())
}

fn bag(number: usize, cert: &CertificateDer<'_>) -> Vec<u8> {
    let cert = [der(OBJECT_IDENTIFIER, X509), der(CONTEXT_0, &der(OCTET_STRING, cert))].concat();
    // Names have to differ, or one certificate would replace another.
    let name: Vec<u8> = format!("exeat-{number}").encode_utf16().flat_map(u16::to_be_bytes).collect();
    let attributes = [
        attribute(FRIENDLY_NAME, &der(BMP_STRING, &name)),
        attribute(TRUSTED_KEY_USAGE, &der(OBJECT_IDENTIFIER, ANY_USAGE)),
    ];
    let bag = [der(OBJECT_IDENTIFIER, CERT_BAG), der(CONTEXT_0, &der(SEQUENCE, &cert)), der(SET, &attributes.concat())];
    der(SEQUENCE, &bag.concat())
}

fn attribute(kind: &[u8], value: &[u8]) -> Vec<u8> {
    der(SEQUENCE, &[der(OBJECT_IDENTIFIER, kind), der(SET, value)].concat())
}

/// A value with its tag and length (X.690 section 8.1).
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let significant: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
            bytes.push(0x80 | u8::try_from(significant.len()).unwrap_or_default());
            bytes.extend(significant);
        }
    }
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_shortest_there_are() {
        for (length, head) in [(0, &[4, 0][..]), (127, &[4, 127]), (128, &[4, 0x81, 128]), (300, &[4, 0x82, 1, 44])] {
            let encoded = der(OCTET_STRING, &vec![7; length]);
            assert_eq!((&encoded[..head.len()], encoded.len()), (head, head.len() + length));
        }
    }

    #[test]
    fn every_certificate_is_in_the_store_whole_and_under_its_own_name() {
        let certificates = [vec![1; 200], vec![2; 100]].map(CertificateDer::from);
        let store = of(&certificates);
        assert_eq!(store[..2], [SEQUENCE, 0x82], "two bytes of length");
        assert_eq!(usize::from(u16::from_be_bytes([store[2], store[3]])), store.len() - 4);
        for certificate in &certificates {
            assert!(memchr::memmem::find(&store, certificate).is_some());
        }
        let name = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
        assert!(memchr::memmem::find(&store, &name("exeat-1")).is_some());
    }
}
