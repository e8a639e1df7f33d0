use super::*;
use crate::domain::fuzz::{fuzz, shape};

/// Only sealed states open, with the sealed content; arbitrary bytes do not.
#[test]
fn states() {
    let whose = Whose { tenant: TenantId(Uuid::from_u128(1)), principal: Uuid::from_u128(2) };
    let rounds = Rounds::new([&b"one"[..], &b"two"[..]]);
    let now = DateTime::from_timestamp(1_795_000_000, 0).unwrap();
    let first = Ulid::from_parts(3, 4);
    let seal = |own: &str| {
        rounds.seal(whose, &[7; 32], Carried { first, consent: None, held: None, own }, now).unwrap()
    };
    let sealed = seal("\"own\"");
    let seeds = [sealed.as_str(), "\"own\"", "", "\0\0\x01\x7f\0\0\0\0................\"own\""];
    fuzz(&seeds, &["=", "AAAA", "\u{1f980}"], |input| {
        let text = String::from_utf8_lossy(input);
        let opened = rounds.open(whose, &[7; 32], &text, now);
        assert_eq!(opened.is_some(), text == sealed, "a state that nobody sealed, or one that does not open");
        // a server's own state is a JSON string
        let own = format!("\"{text}");
        let again = rounds.open(whose, &[7; 32], &seal(&own), now).expect("it opens");
        assert_eq!((again.consent, again.own.as_str()), (None, own.as_str()));
        assert_eq!(rounds.open(whose, &[8; 32], &seal(&own), now), None, "opened for another request");
        let decoded = State::decode(input);
        if let Some(state) = &decoded {
            assert_eq!(state.encode(), input);
        }
        shape((opened.is_some(), decoded.is_some(), input.len() / 16))
    });
}
