//! Secrets: values that are never shown, and the checks of their strength.

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use super::error::must;
use crate::domain::id::is_name;

/// Text that is shown in place of a secret.
pub(super) const REDACTED: &str = "[redacted]";
/// Fewest characters of a secret text.
const CHARS_MIN: usize = 32;
/// Most bytes of a secret text: it must fit into a header.
const BYTES_MAX: usize = 1024;
/// Fewest different characters: a text with fewer is one key held down, not a secret.
const DIFFERENT_MIN: usize = 4;
/// Texts that only placeholders contain.
const PLACEHOLDERS: [&str; 4] = ["changeme", "placeholder", "replaceme", "yoursecret"];
/// Advice on how to make a strong secret.
const GENERATE: &str = "generate one with `openssl rand -base64 32`";

/// A text that is never shown: `Debug` and `Display` print `[redacted]`.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret from a text.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// Returns the text itself; only for where it is used.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// A key of 32 bytes that is never shown.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

impl MasterKey {
    /// Returns the bytes themselves; only for where they are used.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses base64 (either alphabet, padded or not) of exactly 32 bytes.
    pub(super) fn parse(text: &str) -> Result<MasterKey, String> {
        let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let bytes = [alphabet::STANDARD, alphabet::URL_SAFE]
            .iter()
            .find_map(|alphabet| GeneralPurpose::new(alphabet, lenient).decode(text).ok())
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .ok_or_else(|| format!("must be base64 of exactly 32 bytes; {GENERATE}"))?;
        let all_equal = bytes.iter().all(|byte| Some(byte) == bytes.first());
        must(!all_equal, format!("is not random; {GENERATE}"))?;
        Ok(MasterKey(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Checks a secret text. The error is the end of a sentence that begins with the setting's name.
pub(super) fn check_text_secret(text: &str) -> Result<(), String> {
    let long_enough = text.chars().count() >= CHARS_MIN;
    must(long_enough, format!("must have at least {CHARS_MIN} characters; {GENERATE}"))?;
    must(text.len() <= BYTES_MAX, format!("must have at most {BYTES_MAX} bytes; {GENERATE}"))?;
    let plain = text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let is_placeholder = PLACEHOLDERS.iter().any(|placeholder| plain.contains(placeholder));
    let strong = !is_placeholder && !is_weak(text.as_bytes());
    must(strong, format!("is a placeholder or easy to guess; {GENERATE}"))
}

/// Checks a secret text that is also sent in a header.
pub(super) fn check_header_secret(text: &str) -> Result<(), String> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    must(visible, format!("must be of visible ASCII characters without spaces; {GENERATE}"))?;
    check_text_secret(text)
}

/// Splits a key of the form `name:secret`; `None` for any other. Texts whose second part would be too weak a key are no such
/// form.
pub fn named_key(text: &str) -> Option<(&str, &str)> {
    let (name, secret) = text.split_once(':')?;
    (is_name(name) && check_header_secret(secret).is_ok()).then_some((name, secret))
}

/// Returns whether there are hardly any different characters.
fn is_weak(bytes: &[u8]) -> bool {
    bytes.iter().collect::<BTreeSet<_>>().len() < DIFFERENT_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    #[test]
    fn a_key_may_have_a_name() {
        let strong = "Kq83hv02bGkz71LwPq5xNn4tRr9cZz01";
        let of = |name: &str, secret: &str| {
            let text = format!("{name}:{secret}");
            named_key(&text).map(|(name, secret)| (name.to_owned(), secret.to_owned()))
        };
        assert_eq!(of("ops", strong), Some(("ops".to_owned(), strong.to_owned())));
        for name in ["", "Ops", "o_p", "an ops", &"x".repeat(33)] {
            assert_eq!(of(name, strong), None, "{name}");
        }
        assert_eq!(of("ops", "short"), None);
        assert_eq!(of("ops", &"a".repeat(40)), None);
        assert_eq!(named_key(strong), None);
    }

    #[test]
    fn weak_texts_are_refused_and_not_repeated() {
        let weak = [
            "short",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "changeme-Kq83hv02bGkz71LwPq5xNn4tRr9c",
            "CHANGE_ME_Kq83hv02bGkz71LwPq5xNn4tRr9c",
            "abababababababababababababababababab",
        ];
        for text in weak {
            let error = check_text_secret(text).unwrap_err();
            assert!(!error.contains(text) && error.contains("openssl"), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = Secret::new("plain".to_owned());
        assert_eq!(format!("{secret} {secret:?} {secret:#?}"), "[redacted] [redacted] [redacted]");
        assert_eq!(format!("{:?}", MasterKey([7; 32])), "[redacted]");
    }

    #[test]
    fn master_keys() {
        let good: [u8; 32] = std::array::from_fn(|i| (i * i * 7 % 251) as u8);
        for text in [STANDARD.encode(good), URL_SAFE_NO_PAD.encode(good)] {
            assert_eq!(MasterKey::parse(&text).unwrap().expose(), &good);
        }
        for bad in [
            STANDARD.encode([0_u8; 32]),
            STANDARD.encode([7_u8; 32]),
            STANDARD.encode(&good[..31]),
            "not base64!".to_owned(),
            String::new(),
        ] {
            assert!(MasterKey::parse(&bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn random_secrets_pass(bytes in any::<[u8; 32]>()) {
            let text = URL_SAFE_NO_PAD.encode(bytes);
            let unlucky = PLACEHOLDERS.iter().any(|p| text.to_ascii_lowercase().contains(p));
            prop_assume!(!unlucky && !is_weak(&bytes));
            prop_assert!(check_text_secret(&text).is_ok());
            prop_assert!(MasterKey::parse(&text).is_ok());
        }

        #[test]
        fn short_texts_are_refused_whatever_they_hold(text in ".{0,200}") {
            let short = text.chars().count() < CHARS_MIN;
            prop_assert!(!short || check_header_secret(&text).is_err());
            prop_assert!(text.len() >= 43 || MasterKey::parse(&text).is_err());
        }
    }
}
