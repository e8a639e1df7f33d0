//! Permission requests of people who log in, and their answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{asked, asking, decide, lapse, write};
use crate::logins::{GATEWAY, SETTINGS, bearer, set_rules};
use crate::support::{Idp, Stage, Tenant, Upstream, eventually, now_s};

/// A tenant whose calls ask an approver. People of the group `approvers` are approvers, others agents. Their owner is their user name.
async fn scene() -> (Stage, Tenant, Upstream, Idp) {
    let rules = json!([{"id": "strict", "effect": "ask",
        "ask": {"assurance": "approver", "remember": ["allow_always", "reject_always"]}}]);
    let (stage, tenant, upstream) = asking(&SETTINGS, rules).await;
    let idp = Idp::start().await;
    let issuer =
        json!({"name": "corp", "issuer": idp.url, "tenant": "acme", "owner_claim": "preferred_username"});
    stage.platform().post("/api/v1/issuers", &issuer).await.expect(201);
    let approvers = json!([{"claim": "groups", "op": "contains", "value": "approvers"}]);
    set_rules(&tenant, json!([{"conditions": approvers, "role": "approver"}, {"role": "agent"}])).await;
    (stage, tenant, upstream, idp)
}

fn claims(name: &str, groups: &[&str]) -> Value {
    json!({"preferred_username": name, "email": format!("{name}@acme.example"), "groups": groups})
}

#[tokio::test]
async fn a_login_and_a_key_of_one_person_do_not_answer_each_other() {
    let (stage, tenant, _upstream, idp) = scene().await;
    let person =
        |name: &str, groups: &[&str]| bearer(&stage, &idp.token(name, GATEWAY, claims(name, groups)));
    let (ana, eva) = (person("ana", &["approvers"]), person("eva", &["approvers"]));
    for owner in ["ana", "ANA@acme.example"] {
        let key = tenant.key(&json!({"role": "agent", "owner": owner})).await;
        let id = asked(&key, &json!({"owner": owner})).await;
        decide(&ana, &id, "allow_once").await.refused(403, "self_approval");
        decide(&eva, &id, "allow_once").await.expect(200);
    }
    let bob = person("bob", &[]);
    for owner in ["Bob", "bob@acme.example"] {
        let id = asked(&bob, &json!({"owner": owner})).await;
        let key = tenant.key(&json!({"role": "approver", "owner": owner})).await;
        decide(&key, &id, "allow_once").await.refused(403, "self_approval");
        decide(&ana, &id, "allow_once").await.expect(200);
    }
}

#[tokio::test]
async fn what_a_person_allowed_ends_with_a_block() {
    let (stage, tenant, upstream, idp) = scene().await;
    let ana = bearer(&stage, &idp.token("ana", GATEWAY, claims("ana", &["approvers"])));
    let agent = tenant.agent().await;
    let (once, always) = (asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await);
    decide(&ana, &once, "allow_once").await.expect(200);
    decide(&ana, &always, "allow_always").await.expect(200);
    let id = ana.get("/api/v1/status").await.expect(200)["identity_id"].as_str().unwrap().to_owned();
    eventually("the person to be listed", Duration::from_secs(5), || async {
        let people = tenant.platform.items("/api/v1/identities").await;
        people.iter().any(|person| person["id"] == id.as_str()).then_some(())
    })
    .await;
    for act in ["block", "unblock"] {
        tenant.platform.post(&format!("/api/v1/identities/{id}/{act}"), &json!({})).await.expect(200);
        assert_eq!(lapse(&agent, &once).await, "decider_revoked");
        let ask = json!({"n": 3, "after": act});
        write(&agent, &ask).await.refused("consent_pending");
    }
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn what_a_person_has_remembered_outlives_the_token() {
    let (stage, tenant, _upstream, idp) = scene().await;
    let mut short = claims("ana", &["approvers"]);
    short["exp"] = json!(now_s() + 120);
    let ana = bearer(&stage, &idp.token("ana", GATEWAY, short));
    let agent = tenant.agent().await;
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&ana, &id, "reject_always").await.expect(200);
    // a person who was never seen before is stored with the answer
    let grant = tenant.platform.items("/api/v1/consent/grants").await.pop().expect("the grant holds at once");
    let end = chrono::DateTime::parse_from_rfc3339(grant["expires_at"].as_str().unwrap()).unwrap();
    assert!(end.timestamp() > now_s() + 3000, "{grant}");
}
