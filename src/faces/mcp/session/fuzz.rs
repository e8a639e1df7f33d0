use super::*;
use crate::domain::fuzz::{fuzz, shape};

fn session(client: &str) -> Session {
    Session {
        id: "0123456789abcdef0123456789abcdef".into(),
        tenant: uuid::Uuid::from_u128(1),
        key: Some(uuid::Uuid::from_u128(2)),
        endpoint: Endpoint::Search,
        version: "2025-11-25".into(),
        client_name: Some(client.chars().take(CLIENT_CHARS_MAX).collect()),
        client_version: None,
        elicitation: true,
        answers: Some(1),
        began_s: Some(1_795_000_000),
    }
}

/// Only minted tokens can be opened, and each opens to the session for which it was minted.
#[test]
fn tokens() {
    let sessions = Sessions::new(vec![vec![7; 32], vec![8; 32]]);
    let minted = sessions.mint(&session("client")).expect("a token");
    let of_the_old_key = Sessions::new(vec![vec![8; 32]]).mint(&session("client")).expect("a token");
    let seeds = [minted.as_str(), of_the_old_key.as_str(), "", ".", "e30.AAAA", "\u{0}\u{1f980}\"\\"];
    fuzz(&seeds, &[".", "=", "e30", "AAAA"], |input| {
        let text = String::from_utf8_lossy(input);
        let opened = sessions.open(&text);
        let is_ours = text == minted || text == of_the_old_key;
        assert_eq!(opened.is_some(), is_ours, "a token that nobody minted, or one that does not open");
        // whatever a client calls itself, its token is short enough, and opens to its session
        let named = session(&text);
        let token = sessions.mint(&named).expect("a token");
        assert!(token.len() <= TOKEN_BYTES_MAX, "{} bytes", token.len());
        let again = sessions.open(&token).expect("it opens");
        assert_eq!((again.id, again.tenant, again.key), (named.id, named.tenant, named.key));
        assert!(again.client_name.is_none() || again.client_name == named.client_name);
        shape((is_ours, again.client_name.is_some(), text.matches('.').count().min(3), token.len()))
    });
}
