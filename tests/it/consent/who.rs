//! Roles and persons that see permission requests and decide them.

use serde_json::{Value, json};

use super::{asked, asking, decide, state};
use crate::support::Api;

#[tokio::test]
async fn nobody_allows_their_own_call() {
    let rule = json!([{"id": "four-eyes", "effect": "ask", "ask": {"assurance": "approver"}}]);
    let (_stage, tenant, _upstream) = asking(&[], rule).await;
    let admin = tenant.key(&json!({"role": "admin", "owner": "Ana"})).await;
    let same = tenant.key(&json!({"role": "approver", "owner": " ANA"})).await;
    let other = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let id = asked(&admin, &json!({})).await;
    for (own, fact) in [(&admin, "this is the key that asked"), (&same, "have the same owner")] {
        let says = decide(own, &id, "allow_once").await.refused(403, "self_approval");
        assert!(
            says.contains(fact) && !says.contains(&id) && !says.to_lowercase().contains("ana,"),
            "{says}"
        );
    }
    // who asked is whoever it was then
    let path = format!("/api/v1/keys/{}", admin.id);
    tenant.platform.patch(&path, &json!({"owner": "somebody else"})).await.expect(200);
    decide(&same, &id, "allow_once").await.refused(403, "self_approval");
    assert_eq!(state(&other, &id).await, "pending");
    decide(&other, &id, "allow_once").await.expect(200);
    // but may refuse it
    let id = asked(&admin, &json!({"n": 2})).await;
    assert_eq!(decide(&admin, &id, "reject_once").await.expect(200)["state"], "denied");
}

#[tokio::test]
async fn keys_of_one_identity_are_one_person() {
    let rule = json!([{"id": "four-eyes", "effect": "ask", "ask": {"assurance": "approver"}}]);
    let (_stage, tenant, _upstream) = asking(&[], rule).await;
    let (ana, eva) = ("0199aaaa-0000-7000-8000-000000000001", "0199AAAA-0000-7000-8000-000000000002");
    let key = |role: &str, owner: &str, identity: &str| json!({"role": role, "owner": owner, "identity_id": identity});
    let agent = tenant.key(&key("agent", "robot", ana)).await;
    let same = tenant.key(&key("approver", "ana", ana)).await;
    let other = tenant.key(&key("approver", "eva", eva)).await;
    let id = asked(&agent, &json!({})).await;
    let says = decide(&same, &id, "allow_once").await.refused(403, "self_approval");
    assert!(says.contains("have the same identity_id"), "{says}");
    // the request keeps the identity that it began with
    let path = format!("/api/v1/keys/{}", agent.id);
    let changed = tenant.platform.patch(&path, &json!({"identity_id": null})).await.expect(200);
    assert_eq!(changed["identity_id"], Value::Null);
    decide(&same, &id, "allow_once").await.refused(403, "self_approval");
    decide(&other, &id, "allow_once").await.expect(200);
    let id = asked(&agent, &json!({"n": 2})).await;
    decide(&same, &id, "allow_once").await.expect(200);
}

#[tokio::test]
async fn the_bootstrap_key_is_no_second_person_for_keys_that_it_made() {
    let rule = json!([{"id": "four-eyes", "effect": "ask", "match": {"op": "write"}, "ask": {"assurance": "approver"}}]);
    let (stage, tenant, _upstream) = asking(&[], rule).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "ana"})).await;
    let id = asked(&agent, &json!({})).await;
    let says = decide(&tenant.platform, &id, "allow_once").await.refused(403, "self_approval");
    assert!(
        says.contains("your key made the key that asked")
            && says.ends_with("key add --role approver --owner NAME"),
        "{says}"
    );
    // what it says to do helps: keys that one key made are persons of their own
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    decide(&eva, &id, "allow_once").await.expect(200);
    // nor do they approve its own calls, while it approves those of keys that others made
    let own = asked(&tenant.platform, &json!({"n": 2})).await;
    let says = decide(&eva, &own, "allow_once").await.refused(403, "self_approval");
    assert!(says.contains("the key that asked made yours"), "{says}");
    let admin = tenant.admin().await;
    let made = admin.post("/api/v1/keys", &json!({"role": "agent"})).await.expect(201);
    let far = stage.gateway.anonymous().with_key(made["key"].as_str().unwrap());
    let id = asked(&far, &json!({"n": 3})).await;
    decide(&tenant.platform, &id, "allow_once").await.expect(200);
    // an answer that needs no second person is for it to give
    super::set(&tenant, json!([])).await;
    let id = asked(&agent, &json!({"n": 4})).await;
    decide(&tenant.platform, &id, "allow_once").await.expect(200);
}

/// Whoever rotates a key sees the secret of the successor, and a client may have any of them.
#[tokio::test]
async fn nobody_allows_calls_of_a_line_of_rotations_with_a_key_that_they_made() {
    let rule = json!([{"id": "four-eyes", "effect": "ask", "ask": {"assurance": "approver"}}]);
    let (stage, tenant, _upstream) = asking(&[], rule).await;
    let (first, second, third) = (tenant.admin().await, tenant.admin().await, tenant.admin().await);
    let made = async |by: &Api, path: &str, body: &Value| {
        let made = by.post(path, body).await.expect(201);
        let mut key = stage.gateway.anonymous().with_key(made["key"].as_str().unwrap());
        key.id = made["id"].as_str().unwrap().to_owned();
        key
    };
    let rotated =
        async |by: &Api, key: &Api| made(by, &format!("/api/v1/keys/{}/rotate", key.id), &json!({})).await;
    let agent = made(&first, "/api/v1/keys", &json!({"role": "agent"})).await;
    let early = asked(&agent, &json!({"n": 1})).await;
    let successor = rotated(&second, &agent).await;
    // of the key before as well, which is the same person
    for by in [&first, &second] {
        decide(by, &early, "allow_once").await.refused(403, "self_approval");
    }
    let last = rotated(&third, &successor).await;
    let mut connection = stage.database.connect().await;
    for gone in [&agent, &successor] {
        tenant.platform.delete(&format!("/api/v1/keys/{}", gone.id)).await.expect(204);
        let row = format!("delete from api_keys where key_id = '{}'", gone.id);
        sqlx::query(sqlx::AssertSqlSafe(row)).execute(&mut connection).await.unwrap();
    }
    let id = asked(&last, &json!({"n": 2})).await;
    for by in [&first, &second, &third] {
        let says = decide(by, &id, "allow_once").await.refused(403, "self_approval");
        assert!(says.contains("your key made the key that asked"), "{says}");
    }
    decide(&tenant.admin().await, &id, "allow_once").await.expect(200);
}

#[tokio::test]
async fn where_the_own_client_may_answer_another_key_of_the_person_may() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "ana"})).await;
    let admin = tenant.key(&json!({"role": "admin", "owner": "bob"})).await;
    let same = tenant.key(&json!({"role": "approver", "owner": "ana"})).await;
    let id = asked(&agent, &json!({})).await;
    decide(&same, &id, "allow_once").await.expect(200);
    // never the own key over REST
    let own = asked(&admin, &json!({})).await;
    decide(&admin, &own, "allow_once").await.refused(403, "self_approval");
}

#[tokio::test]
async fn roles() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let id = asked(&agent, &json!({})).await;
    for may_not in [tenant.operator().await, tenant.auditor().await, agent.clone()] {
        decide(&may_not, &id, "allow_once").await.refused(403, "not_approver");
    }
    for sees in [tenant.operator().await, tenant.auditor().await, tenant.approver().await] {
        assert_eq!(sees.items("/api/v1/consent").await.len(), 1);
        assert_eq!(state(&sees, &id).await, "pending");
    }
    // an agent sees its own alone
    assert_eq!(agent.items("/api/v1/consent").await.len(), 1);
    let other = tenant.agent().await;
    assert_eq!(other.items("/api/v1/consent").await, [Value::Null; 0]);
    assert_eq!(other.items(&format!("/api/v1/consent?key={}", agent.id)).await, [Value::Null; 0]);
    other.get(&format!("/api/v1/consent/{id}")).await.refused(404, "not_found");
    let stranger = stage.tenant("globex").await;
    decide(&stranger.admin().await, &id, "allow_once").await.refused(404, "not_found");
    assert_eq!(stranger.admin().await.items("/api/v1/consent").await, [Value::Null; 0]);
}

#[tokio::test]
async fn the_first_decision_wins_and_the_loser_is_told() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let max = tenant.key(&json!({"role": "approver", "owner": "max"})).await;
    let id = asked(&agent, &json!({})).await;
    decide(&eva, &id, "reject_once").await.expect(200);
    let says = decide(&max, &id, "allow_once").await.refused(409, "conflict");
    let begins = "this request is denied already: eva was first, over rest, at ";
    let middle = "; it stays as it is: the same call is refused until ";
    assert!(
        says.starts_with(begins) && says.contains(middle) && says.ends_with("asks again after that"),
        "{says}"
    );
    // of many at one moment exactly one wins
    let id = asked(&agent, &json!({"n": 2})).await;
    let decisions = ["allow_once", "reject_once"].into_iter().cycle().take(10);
    let racing =
        decisions.map(|decision| decide(if decision == "allow_once" { &eva } else { &max }, &id, decision));
    let answers = futures_util::future::join_all(racing).await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 409)), "{answers:?}");
    assert_eq!(state(&eva, &id).await, won[0].json()["state"]);
}

#[tokio::test]
async fn only_what_is_offered() {
    let rules = json!([
        {"id": "once", "effect": "ask", "match": {"tool": "zoo:writer"}, "ask": {"remember": ["reject_always"]}},
    ]);
    let (_stage, tenant, _upstream) = asking(&[], rules).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({})).await;
    let shown = approver.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    assert_eq!(shown["options"], json!(["allow_once", "reject_once", "reject_always", "cancel_turn"]));
    let says = decide(&approver, &id, "allow_always").await.refused(400, "invalid_request");
    let expected = "allow_always (--always) is not offered: rule 'once', or another one that asks, does not name it in \
                    'remember' (ask: {remember: […]}); this request offers: allow_once, reject_once, reject_always, \
                    cancel_turn";
    assert_eq!(says, expected);
    for (body, field) in [
        (json!({"decision": "maybe"}), "decision"),
        (json!({}), "decision"),
        (json!({"decision": "allow_once", "comment": "x".repeat(501)}), "comment"),
        (json!({"decision": "allow_once", "expires_in_s": 60}), "expires_in_s"),
        (json!({"decision": "reject_always", "expires_in_s": 0}), "expires_in_s"),
    ] {
        let answer = approver.post(&format!("/api/v1/consent/{id}/decision"), &body).await;
        assert_eq!(answer.expect(400)["error"]["field"], field, "{answer:?}");
    }
    // what was cut is said first, and never remembered
    let long = asked(&agent, &json!({"text": "x".repeat(5000)})).await;
    let shown = approver.get(&format!("/api/v1/consent/{long}")).await.expect(200);
    assert_eq!(shown["options"], json!(["allow_once", "reject_once", "cancel_turn"]));
    assert!(shown["arguments"].as_str().unwrap().len() < 3000);
    let says = decide(&approver, &long, "reject_always").await.refused(400, "invalid_request");
    assert!(
        says.starts_with("reject_always (--always) is not offered: the arguments are too long"),
        "{says}"
    );
}

#[tokio::test]
async fn a_rotated_key_is_no_second_person() {
    let rule = json!([{"id": "four-eyes", "effect": "ask", "ask": {"assurance": "approver"}}]);
    let (_stage, tenant, _upstream) = asking(&[], rule).await;
    let (first, other) = (tenant.admin().await, tenant.approver().await);
    let id = asked(&first, &json!({})).await;
    let second = tenant.rotated(&first).await;
    let third = tenant.rotated(&second).await;
    let later = asked(&second, &json!({"n": 2})).await;
    for (key, id) in [(&second, &id), (&third, &id), (&first, &later), (&third, &later)] {
        let says = decide(key, id, "allow_once").await.refused(403, "self_approval");
        assert!(says.contains("rotations of one key"), "{says}");
    }
    decide(&other, &id, "allow_once").await.expect(200);
    // nor may it where another key of the person may: it replaces the one that asked
    super::set(&tenant, json!([])).await;
    let id = asked(&first, &json!({"n": 3})).await;
    decide(&third, &id, "allow_once").await.refused(403, "self_approval");
    decide(&other, &id, "allow_once").await.expect(200);
}
