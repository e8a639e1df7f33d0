//! Fetches of keys that others try to stop, or that end late.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::{GATEWAY, bearer, scene};
use crate::support::{Api, Ear, Idp, IdpMood, Mcp, eventually, settle};

const SOON: Duration = Duration::from_secs(1);

async fn status(api: &Api) -> u16 {
    api.get("/api/v1/status").await.status
}

#[tokio::test]
async fn a_client_that_hangs_up_stops_no_fetch() {
    let (stage, _tenant, idp) = scene().await;
    idp.rotate("k2");
    idp.set(IdpMood::Held);
    let stranger = json!({"alg": "ES256", "kid": "no-such-key"});
    let stranger = bearer(&stage, &idp.sign_as(&stranger, &idp.claims("u1", GATEWAY)));
    let asking = tokio::spawn(async move { status(&stranger).await });
    eventually("a fetch", Duration::from_secs(5), || async { (idp.fetches() == 2).then_some(()) }).await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    let new = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let waiting = tokio::spawn({
        let new = new.clone();
        async move { status(&new).await }
    });
    idp.set(IdpMood::Well);
    assert_eq!(waiting.await.unwrap(), 200);
    assert_eq!(idp.fetches(), 2);
}

#[tokio::test]
async fn keys_of_a_url_that_was_changed_meanwhile_are_not_stored() {
    let (stage, _tenant, stolen) = scene().await;
    let new = Idp::start().await;
    stolen.rotate("k2");
    stolen.set(IdpMood::Held);
    let thief = bearer(&stage, &stolen.token("u1", GATEWAY, json!({})));
    let asking = tokio::spawn({
        let thief = thief.clone();
        async move { status(&thief).await }
    });
    eventually("a fetch", Duration::from_secs(5), || async { (stolen.fetches() == 2).then_some(()) }).await;
    let patch = json!({"jwks_uri": format!("{}/keys", new.url)});
    stage.platform().ask(Method::PATCH, "/api/v1/issuers/corp", Some(&patch)).await.expect(200);
    stolen.set(IdpMood::Well);
    assert_eq!(asking.await.unwrap(), 401);
    let claims = stolen.claims("u1", GATEWAY);
    settle(200, Duration::from_secs(5), || async { status(&bearer(&stage, &new.sign(&claims))).await }).await;
    assert_eq!(status(&thief).await, 401);
}

#[tokio::test]
async fn a_stream_ends_with_what_its_token_was_verified_by() {
    let (stage, _tenant, idp) = scene().await;
    let patch = async |change| {
        stage.platform().ask(Method::PATCH, "/api/v1/issuers/corp", Some(&change)).await.expect(200);
    };
    for (there, gone) in [
        (json!({"audiences": ["client-7"]}), json!({"audiences": []})),
        (json!({"algorithms": ["ES256"]}), json!({"algorithms": ["RS256"]})),
        (json!({"algorithms": ["ES256"], "subject_claim": "sub"}), json!({"subject_claim": "oid"})),
    ] {
        patch(json!({"audiences": ["client-7"]})).await;
        patch(there).await;
        let more = json!({"client_id": "client-7", "oid": "u1-oid"});
        let person = bearer(&stage, &idp.token("u1", "client-7", more));
        let ear = Ear::of(&Mcp::session(&person).await, None).await;
        patch(gone).await;
        ear.ends(SOON).await;
    }
}

/// Other keys of the issuer end no stream, as long as the one of the token is among them.
#[tokio::test]
async fn a_stream_goes_on_through_a_rotation() {
    let (stage, tenant, idp) = scene().await;
    let person = bearer(&stage, &idp.token("u1", GATEWAY, json!({})));
    let ear = Ear::of(&Mcp::session(&person).await, None).await;
    idp.rotate("k2");
    let other = bearer(&stage, &idp.token("u2", GATEWAY, json!({})));
    let id = other.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
    let last = Ear::of(&Mcp::session(&other).await, None).await;
    eventually("the other person to be listed", Duration::from_secs(5), || async {
        let people = tenant.platform.items("/api/v1/identities").await;
        people.iter().any(|person| person["id"] == id.as_str()).then_some(())
    })
    .await;
    tenant.platform.post(&format!("/api/v1/identities/{id}/block"), &json!({})).await.expect(200);
    // streams are looked at in order: that of the rotation came before
    last.ends(SOON).await;
    assert!(!ear.has_ended());
    assert_eq!(status(&person).await, 200);
}
