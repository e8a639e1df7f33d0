//! Pins of tool definitions: hashes that tell whether a definition is still the one that was trusted.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};
use sha2::{Digest, Sha256};

use super::canonical::canonical;
use super::json::JsonFault;

/// Version of the canonical form and hash. Every pin begins with it, so that a change of either is visible.
const PREFIX: &str = "v1:";

/// Digits of a SHA-256 in hexadecimal.
const HEX_CHARS: usize = 64;

/// Pin of a definition: `v1:` and the SHA-256 of its canonical text, in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Pin(String);

/// Error for a text that is not a pin of a known version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 'v1:' followed by 64 lower-case hexadecimal digits")]
pub struct InvalidPin;

impl Pin {
    /// Returns the pin of a whole definition, a JSON text. Member order, white space and the spelling of strings do
    /// not change the pin; everything else does.
    ///
    /// # Errors
    /// The faults of [`canonical`]: the text is not acceptable JSON.
    pub fn of(definition: &str) -> Result<Self, JsonFault> {
        let digest = Sha256::digest(canonical(definition)?.as_bytes());
        let mut text = String::with_capacity(PREFIX.len() + HEX_CHARS);
        text.push_str(PREFIX);
        for byte in digest.iter() {
            for digit in [byte >> 4, byte & 0xf] {
                text.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        Ok(Self(text))
    }

    /// Reads a pin as [`fmt::Display`] writes it.
    ///
    /// # Errors
    /// [`InvalidPin`] for anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidPin> {
        let hex = text.strip_prefix(PREFIX).ok_or(InvalidPin)?;
        let digits = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if hex.len() == HEX_CHARS && digits { Ok(Self(text.to_owned())) } else { Err(InvalidPin) }
    }

    /// Returns the pin as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_OBJECT: &str = "v1:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    #[test]
    fn is_the_sha256_of_the_canonical_text() {
        assert_eq!(Pin::of(" { } ").unwrap().as_str(), EMPTY_OBJECT);
        assert_eq!(Pin::of(r#"{"b":1,"a":2}"#), Pin::of("{ \"a\" : 2,\n\"\\u0062\":1 }"));
        assert_ne!(Pin::of(r#"{"a":1.0}"#), Pin::of(r#"{"a":1}"#));
        assert_eq!(Pin::of("{"), Err(JsonFault::Syntax { offset: 1 }));
    }

    #[test]
    fn parses_only_what_it_writes() {
        let pin = Pin::of("{}").unwrap();
        assert_eq!(Pin::parse(&pin.to_string()), Ok(pin.clone()));
        let json = serde_json::to_string(&pin).unwrap();
        assert_eq!(json, format!("\"{EMPTY_OBJECT}\""));
        assert_eq!(serde_json::from_str::<Pin>(&json).unwrap(), pin);
        let hex = EMPTY_OBJECT.strip_prefix("v1:").unwrap();
        for wrong in [
            "",
            "v1:",
            hex,
            &format!("v2:{hex}"),
            &format!("v1:{}", hex.to_uppercase()),
            &format!("v1:{hex}0"),
        ] {
            assert_eq!(Pin::parse(wrong), Err(InvalidPin), "{wrong}");
            assert!(serde_json::from_str::<Pin>(&format!("\"{wrong}\"")).is_err());
        }
    }
}
