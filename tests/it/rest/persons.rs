//! Separation of duties goes by person: another key of the same person is nobody else.

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::{Answer, Api, Stage, Tenant, Tool, Upstream};

const RELEASE: &str = "/api/v1/servers/up/unquarantine";

async fn operator(tenant: &Tenant, more: Value) -> Api {
    let mut body = json!({"role": "operator"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tenant.key(&body).await
}

/// `by` adds `up`, in the place of the one before.
async fn add(tenant: &Tenant, by: &Api, upstream: &Upstream) {
    drop(tenant.platform.delete("/api/v1/servers/up").await);
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    by.post("/api/v1/servers", &body).await.expect(201);
}

async fn run(stage: &Stage, statement: String) {
    let mut owner = stage.database.connect().await;
    let done = sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut owner).await.unwrap();
    assert!(done.rows_affected() > 0, "{statement}");
}

async fn release(by: &Api) -> Answer {
    by.post(RELEASE, &json!({})).await
}

/// All that only somebody else may do.
async fn is_refused_everything(tenant: &Tenant, by: &Api) {
    let pin = tenant.platform.items("/api/v1/servers/up/tools").await.remove(0)["pin"].clone();
    let said = json!({"pin": pin, "annotations": {"readOnlyHint": true}});
    release(by).await.refused(403, "forbidden");
    by.post("/api/v1/servers/up/tools/t/approve", &json!({"pin": pin})).await.refused(403, "forbidden");
    by.ask(reqwest::Method::PUT, "/api/v1/servers/up/tools/t/override", Some(&said))
        .await
        .refused(403, "forbidden");
    by.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.refused(403, "forbidden");
}

#[tokio::test]
async fn two_keys_of_one_owner_are_one_person() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let ana = operator(&tenant, json!({"owner": "Ana@Example.com"})).await;
    let again = operator(&tenant, json!({"owner": "ana@example.COM", "name": "other"})).await;
    let bob = operator(&tenant, json!({"owner": "bob@example.com"})).await;
    add(&tenant, &ana, &upstream).await;
    is_refused_everything(&tenant, &again).await;
    let identity = json!({"identity_id": "0199aaaa-0000-7000-8000-000000000001"});
    let known = operator(&tenant, identity.clone()).await;
    tenant.platform.patch(&format!("/api/v1/keys/{}", ana.id), &identity).await.expect(200);
    add(&tenant, &ana, &upstream).await;
    is_refused_everything(&tenant, &known).await;
    // her key is gone, row and all: she added it all the same
    tenant.platform.delete(&format!("/api/v1/keys/{}", ana.id)).await.expect(204);
    run(&stage, format!("delete from api_keys where key_id = '{}'", ana.id)).await;
    is_refused_everything(&tenant, &again).await;
    is_refused_everything(&tenant, &known).await;
    release(&bob).await.expect(200);
}

/// Names and roles that stand in for an owner say nothing about who it is.
#[tokio::test]
async fn a_key_without_an_owner_is_a_person_of_its_own() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let (one, two) = (operator(&tenant, json!({})).await, operator(&tenant, json!({})).await);
    add(&tenant, &one, &upstream).await;
    is_refused_everything(&tenant, &one).await;
    release(&two).await.expect(200);
    let named = json!({"name": "ci"});
    let (one, two) = (operator(&tenant, named.clone()).await, operator(&tenant, named).await);
    // a new name is no owner either
    for key in [&one, &two] {
        tenant
            .platform
            .patch(&format!("/api/v1/keys/{}", key.id), &json!({"name": "build"}))
            .await
            .expect(200);
    }
    add(&tenant, &one, &upstream).await;
    release(&two).await.expect(200);
    // said later, it counts, for what was added before as well
    add(&tenant, &one, &upstream).await;
    for key in [&one, &two] {
        let owner = json!({"owner": "ana"});
        tenant.platform.patch(&format!("/api/v1/keys/{}", key.id), &owner).await.expect(200);
    }
    is_refused_everything(&tenant, &two).await;
}

#[tokio::test]
async fn who_made_a_key_is_the_same_person_as_the_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let admin = tenant.key(&json!({"role": "admin", "owner": "ana"})).await;
    let made = admin.post("/api/v1/keys", &json!({"role": "operator", "owner": "robot"})).await.expect(201);
    let robot = stage.gateway.anonymous().with_key(made["key"].as_str().unwrap());
    let other = operator(&tenant, json!({})).await;
    add(&tenant, &admin, &upstream).await;
    tenant.platform.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
    is_refused_everything(&tenant, &robot).await;
    release(&other).await.expect(200);
    // an admin decides about anything
    add(&tenant, &robot, &upstream).await;
    release(&admin).await.expect(200);
}

#[tokio::test]
async fn an_admin_decides_where_nobody_knows_who_added_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let (one, two) = (operator(&tenant, json!({})).await, operator(&tenant, json!({})).await);
    add(&tenant, &one, &upstream).await;
    // as the release before adds it: the key is there, so it is known
    let old = "update servers set adder_key = null, adder_owner = null, adder_creator = null where removed_at is null";
    run(&stage, old.to_owned()).await;
    is_refused_everything(&tenant, &one).await;
    release(&two).await.expect(200);
    tenant.platform.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
    // and its key is gone
    run(&stage, "update servers set added_by = gen_random_uuid() where removed_at is null".to_owned()).await;
    let refused = release(&two).await.refused(403, "forbidden");
    assert!(refused.contains("admin") && refused.contains("'up'"), "{refused}");
    is_refused_everything(&tenant, &two).await;
    release(&tenant.admin().await).await.expect(200);
}

#[tokio::test]
async fn a_key_and_its_rotations_are_one_person() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let (first, other) = (operator(&tenant, json!({})).await, operator(&tenant, json!({})).await);
    add(&tenant, &first, &upstream).await;
    let second = tenant.rotated(&first).await;
    let third = tenant.rotated(&second).await;
    is_refused_everything(&tenant, &second).await;
    is_refused_everything(&tenant, &third).await;
    add(&tenant, &third, &upstream).await;
    is_refused_everything(&tenant, &first).await;
    // said of a successor, an owner counts for what the key before it added
    add(&tenant, &second, &upstream).await;
    let ana = json!({"owner": "ana"});
    let same = operator(&tenant, ana.clone()).await;
    tenant.platform.patch(&format!("/api/v1/keys/{}", third.id), &ana).await.expect(200);
    is_refused_everything(&tenant, &same).await;
    // rows and all, the keys are gone: the server keeps whose it is
    for key in [&first, &second] {
        tenant.platform.delete(&format!("/api/v1/keys/{}", key.id)).await.expect(204);
        run(&stage, format!("delete from api_keys where key_id = '{}'", key.id)).await;
    }
    is_refused_everything(&tenant, &third).await;
    is_refused_everything(&tenant, &tenant.rotated(&third).await).await;
    release(&other).await.expect(200);
}

#[tokio::test]
async fn what_a_rotated_key_makes_is_of_the_key_before_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let admin = tenant.admin().await;
    let body = json!({"role": "operator"});
    let robots = [&admin, &tenant.rotated(&admin).await].map(|by| by.post("/api/v1/keys", &body));
    let later = tenant.rotated(&tenant.key(&body).await).await;
    for made in futures_util::future::join_all(robots).await {
        let robot = admin.with_key(made.expect(201)["key"].as_str().unwrap());
        add(&tenant, &robot, &upstream).await;
        is_refused_everything(&tenant, &robot).await;
        add(&tenant, &admin, &upstream).await;
        tenant.platform.post("/api/v1/servers/up/quarantine", &json!({})).await.expect(200);
        is_refused_everything(&tenant, &robot).await;
    }
    release(&later).await.expect(200);
}
