//! `private_key_jwt`: a client that signs who it is (RFC 7523 sections 2.2 and 3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use zeroize::Zeroizing;

use super::super::error::MintError;

/// How long an assertion may be used. It is sent at once.
const LIFETIME: Duration = Duration::from_secs(60);

enum Key {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

impl Key {
    /// A key of one of the kinds that ring signs with.
    fn read(pem: &str) -> Result<Self, MintError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| MintError::new("the private key is no PEM file of PKCS #8"))?;
        let der = der.secret_pkcs8_der();
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new()) {
            return Ok(Self::Es256(key));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self::EdDsa(key));
        }
        let key = RsaKeyPair::from_pkcs8(der);
        key.map(Self::Rs256).map_err(|_| MintError::new("the private key is none of EC P-256, Ed25519 and RSA"))
    }

    /// `alg` (RFC 7518 section 3.1, RFC 8037 section 3.1).
    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::EdDsa(_) => "EdDSA",
            Self::Rs256(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, ring::error::Unspecified> {
        let random = SystemRandom::new();
        match self {
            Self::Es256(key) => key.sign(&random, message).map(|signature| signature.as_ref().to_vec()),
            Self::EdDsa(key) => Ok(key.sign(message).as_ref().to_vec()),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map(|()| signature)
            }
        }
    }
}

/// An assertion of `client`, for `audience` alone.
pub(super) fn signed(
    pem: &str,
    key_id: Option<&str>,
    client: &str,
    audience: &str,
) -> Result<Zeroizing<String>, MintError> {
    let failed = |_| MintError::new("the assertion could not be signed");
    let key = Key::read(pem)?;
    let mut header = json!({ "alg": key.algorithm(), "typ": "JWT" });
    if let (Some(key_id), Some(header)) = (key_id, header.as_object_mut()) {
        header.insert("kid".to_owned(), key_id.into());
    }
    let mut unique = [0; 16];
    SystemRandom::new().fill(&mut unique).map_err(failed)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let claims = json!({
        "iss": client,
        "sub": client,
        "aud": audience,
        "jti": BASE64URL.encode(unique),
        "iat": now.as_secs(),
        "exp": (now + LIFETIME).as_secs(),
    });
    let message = format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims.to_string()));
    let signature = key.sign(message.as_bytes()).map_err(failed)?;
    Ok(Zeroizing::new(format!("{message}.{}", BASE64URL.encode(signature))))
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _};
    use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm};
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_assertion_is_signed_and_says_who_and_for_whom() {
        let kinds: [(&'static rcgen::SignatureAlgorithm, &str, &'static dyn VerificationAlgorithm); 2] =
            [(&PKCS_ECDSA_P256_SHA256, "ES256", &ECDSA_P256_SHA256_FIXED), (&PKCS_ED25519, "EdDSA", &ED25519)];
        for (kind, name, verification) in kinds {
            let pair = KeyPair::generate_for(kind).unwrap();
            let assertion = signed(&pair.serialize_pem(), Some("k1"), "me", "https://as.test").unwrap();
            let parts: Vec<&str> = assertion.split('.').collect();
            let decode = |part: &str| BASE64URL.decode(part).unwrap();
            let json = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
            let (header, claims) = (json(parts[0]), json(parts[1]));
            assert_eq!(header, json!({ "alg": name, "typ": "JWT", "kid": "k1" }));
            assert_eq!((&claims["iss"], &claims["sub"]), (&"me".into(), &"me".into()));
            assert_eq!(claims["aud"], "https://as.test");
            assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
            let message = format!("{}.{}", parts[0], parts[1]);
            let key = UnparsedPublicKey::new(verification, pair.der_bytes());
            key.verify(message.as_bytes(), &decode(parts[2])).unwrap();
        }
    }

    #[test]
    fn what_is_no_key_is_not_quoted() {
        for pem in ["canary", "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"] {
            let error = signed(pem, None, "me", "https://as.test").unwrap_err().to_string();
            assert!(error.starts_with("the private key is no") && !error.contains("canary"), "{error}");
        }
    }
}
