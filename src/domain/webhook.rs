//! Signatures of webhooks, as Standard Webhooks 1.0.0 has them (standardwebhooks.com), and the delays between tries.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use zeroize::Zeroizing;

use super::backoff::{doubled, jittered};

/// Prefix of a secret's text.
const PREFIX: &str = "whsec_";
/// Fewest bytes of a secret.
pub const SECRET_BYTES_MIN: usize = 24;
/// Most bytes of a secret.
pub const SECRET_BYTES_MAX: usize = 64;
/// Delay after the first failure. Each further one is four times as long, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Secret that signs the events of a tenant, never shown, and wiped when it is dropped.
pub struct WebhookSecret(Zeroizing<Vec<u8>>);

impl WebhookSecret {
    /// Reads the text of a secret: `whsec_` and its bytes as Base64. `None` for any other text, or a length out of bounds.
    pub fn parse(text: &str) -> Option<WebhookSecret> {
        let bytes = Zeroizing::new(STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?);
        WebhookSecret::read(&bytes)
    }

    /// Reads the bytes of a secret; `None` for a length out of bounds.
    pub fn read(bytes: &[u8]) -> Option<WebhookSecret> {
        let fits = (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len());
        fits.then(|| WebhookSecret(Zeroizing::new(bytes.to_vec())))
    }

    /// Returns the bytes, to seal them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text of the secret, for the person who has just made it.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(&*self.0)))
    }

    /// Returns the value of `webhook-signature` for the event `id`, sent at this Unix time with this body.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Returns the delay after so many failed tries: about 250 ms, 1 s, 4 s, 16 s, then a minute. The `chance` is as in
/// [`jittered`].
pub fn retry_delay(tries: u32, chance: f64) -> Duration {
    jittered(doubled(RETRY_MIN, RETRY_MAX, tries.saturating_sub(1).saturating_mul(2)), chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the reference libraries.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(*secret.text(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(format!("{secret:?}"), "[redacted]");
    }

    #[test]
    fn secrets_have_one_form() {
        for length in [24, 25, 26, 63, 64] {
            let secret = WebhookSecret::read(&vec![7; length]).unwrap();
            assert_eq!(WebhookSecret::parse(&secret.text()).unwrap().expose(), vec![7; length]);
        }
        for length in [0, 23, 65] {
            assert!(WebhookSecret::read(&vec![7; length]).is_none());
            let text = format!("{PREFIX}{}", STANDARD.encode(vec![7; length]));
            assert!(WebhookSecret::parse(&text).is_none());
        }
        let bare = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for bad in [bare.to_owned(), format!("whsec_{bare}="), format!("whsec_{bare} "), "whsec_".to_owned()]
        {
            assert!(WebhookSecret::parse(&bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn delays_grow_fourfold_to_a_minute() {
        let delays = [1, 2, 3, 4, 5, 6, u32::MAX].map(|tries| retry_delay(tries, 1.0).as_millis());
        assert_eq!(delays, [250, 1000, 4000, 16_000, 60_000, 60_000, 60_000]);
        assert_eq!(retry_delay(2, 0.0), Duration::from_millis(500));
    }
}
