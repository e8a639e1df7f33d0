//! Remembered decisions of a key that is rotated.

use serde_json::{Value, json};

use super::{asked, asking, decide, write};
use crate::support::{Api, Mcp, Tenant};

async fn grants(tenant: &Tenant, key: &Api) -> Vec<Value> {
    let mut grants = tenant.platform.items("/api/v1/consent/grants").await;
    grants.retain(|grant| grant["key_id"] == key.id.as_str());
    grants
}

async fn grants_ended(tenant: &Tenant, key: &Api) -> Value {
    let path = format!("/api/v1/keys/{}/rotate", key.id);
    tenant.platform.post(&path, &json!({})).await.expect(201)["grants_ended"].clone()
}

#[tokio::test]
async fn decisions_about_a_key_hold_for_its_successor() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    let refused = Mcp::bare(&agent).run("read", "zoo:reader", &json!({})).await.refused("consent_pending");
    decide(&approver, refused["consent_id"].as_str().unwrap(), "reject_always").await.expect(200);
    let gone = asked(&agent, &json!({"force": true})).await;
    decide(&approver, &gone, "allow_always").await.expect(200);
    let risky = grants(&tenant, &agent).await.remove(0)["id"].as_str().unwrap().to_owned();
    tenant.platform.delete(&format!("/api/v1/consent/grants/{risky}")).await.expect(204);

    let successor = tenant.rotated(&agent).await;
    let (before, after) = (grants(&tenant, &agent).await, grants(&tenant, &successor).await);
    assert_eq!((before.len(), after.len()), (2, 2), "{before:?} {after:?}");
    for (old, new) in before.iter().zip(&after) {
        let mut same = new.clone();
        for (field, own) in [("id", &new["id"]), ("key_id", &json!(successor.id))] {
            assert_eq!(&new[field], own);
            assert_ne!(new[field], old[field]);
            same[field] = old[field].clone();
        }
        assert_eq!(same, *old);
    }
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    write(&successor, &json!({"n": 2})).await.ok();
    Mcp::bare(&successor).run("read", "zoo:reader", &json!({})).await.refused("policy_denied");
    asked(&successor, &json!({"force": true})).await;

    // what the key's own client answered is the successor's own answer
    let mut connection = stage.database.connect().await;
    sqlx::query("update consent_grants set granted_by = principal").execute(&mut connection).await.unwrap();
    assert_eq!(grants(&tenant, &successor).await.len(), 2);
    let third = tenant.rotated(&successor).await;
    tenant.platform.delete(&format!("/api/v1/keys/{}", successor.id)).await.expect(204);
    write(&third, &json!({"n": 3})).await.ok();
}

#[tokio::test]
async fn a_rotation_says_how_many_decisions_end_with_the_key() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    assert_eq!(grants_ended(&tenant, &agent).await, 0, "it gave none");
    // those of the agent and of its successor
    assert_eq!(grants_ended(&tenant, &approver).await, 2);
    tenant.platform.delete(&format!("/api/v1/keys/{}", approver.id)).await.expect(204);
    asked(&agent, &json!({"n": 2})).await;
}

#[tokio::test]
async fn a_tenant_has_no_more_grants_than_replicas_keep() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    let mut connection = stage.database.connect().await;
    sqlx::query(
        "insert into consent_grants (tenant_id, id, principal, owner, server_id, server, tool, operation_type, pin,
             effect, assurance, request_id, granted_by, granted_owner, granted_via, expires_at, rev)
         select tenant_id, gen_random_uuid(), case when n < 50 then principal else gen_random_uuid() end, owner, server_id,
             server, 'other' || n, operation_type, pin, effect, assurance, request_id, granted_by, granted_owner,
             granted_via, expires_at, rev
         from consent_grants, generate_series(1, 989) n",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    tenant.rotated(&agent).await;
    let held: i64 =
        sqlx::query_scalar("select count(*) from consent_grants").fetch_one(&mut connection).await.unwrap();
    assert_eq!(held, 1000);
}
