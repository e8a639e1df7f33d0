//! Single steps: drafts of forms, from their first value to their submission.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor;

use super::execution::{SOON, approve_changed, ledger, shop_with, steps, thanks, theme};
use super::form_site::{FormSite, Reply};
use crate::support::{Api, Gateway, Mcp, Outcome, Stage, Tenant, eventually, settle};

/// A box that only a step can tick: the form's author says nothing of it.
const BOLD: &str = r#"<label><input type=checkbox name=bold value=yes> Bold</label>"#;

pub(super) async fn set(agent: &Api, color: &str) -> Outcome {
    let args = json!({"selector": "#theme [name=\"color\"]", "value": color});
    Mcp::bare(agent).run("write", "shop:set_data", &args).await
}

pub(super) async fn invoke(agent: &Api) -> Outcome {
    Mcp::bare(agent).run("destructive", "shop:invoke", &json!({"selector": "#theme"})).await
}

pub(super) async fn drafts(stage: &Stage) -> i64 {
    stage.database.count("select count(*) from web_drafts").await
}

async fn theme_site(more: &str) -> FormSite {
    FormSite::start(&[("GET /list", Reply::page(&theme("t", more))), ("POST /theme", thanks())]).await
}

async fn shop(stage: &Stage, site: &FormSite) -> Tenant {
    shop_with(stage, site, &["/list"], json!({"execute": "policy"})).await
}

#[tokio::test]
async fn a_draft_is_set_on_one_replica_and_sent_once_by_another() {
    let stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let site = theme_site(BOLD).await;
    let tenant = shop(&stage, &site).await;
    let agent = tenant.agent().await;
    let there = other.ask_as(&agent);
    let begun = set(&agent, "red").await.ok();
    assert_eq!(
        (&begun["structuredContent"]["form"], &begun["structuredContent"]["fields"]),
        (&json!("#theme"), &json!(["color"])),
        "{begun}"
    );
    let tick = json!({"selector": "#theme [name=\"bold\"]", "value": true});
    let ticked = Mcp::bare(&there).run("write", "shop:set_interaction", &tick).await.ok();
    assert_eq!(ticked["structuredContent"]["fields"], json!(["bold", "color"]));
    set(&agent, "navy blue").await.ok();
    assert_eq!(site.lines(), [""; 0], "nothing is sent by a step");
    assert_eq!(invoke(&there).await.ok()["structuredContent"]["class"], "accepted");
    let seen = site.take();
    assert_eq!(
        seen.iter().map(|request| request.line.as_str()).collect::<Vec<_>>(),
        ["GET /list", "POST /theme"]
    );
    assert_eq!(seen[1].body, "csrf_token=t&color=navy+blue&bold=yes");
    let record = &tenant.records("type=tool_call&tool=invoke&status=success", 1).await[0];
    assert!(record["arguments"].to_string().contains("navy blue"), "{record}");
    let rows = ledger(&tenant, &record["id"]).await;
    let expected = [
        "recorded data color sets-the-value",
        "recorded interaction bold ticks-or-selects",
        "recorded submit #theme sends-the-form-by-post",
        "committed outcome #theme the-site-answered-accepted",
    ];
    assert_eq!((steps(&rows), &rows["intact"]), (expected.map(str::to_owned).to_vec(), &json!(true)));
    let step = &tenant.records("type=tool_call&tool=set_interaction&status=success", 1).await[0];
    assert_eq!(step["upstream_ms"], Value::Null, "no site was asked: {step}");

    // a draft is sent once, wherever it is invoked
    assert_eq!(drafts(&stage).await, 0);
    for api in [&agent, &there] {
        let refused = invoke(api).await.refused("invalid_arguments");
        assert!(refused["message"].as_str().unwrap().contains("no draft"), "{refused}");
    }
    set(&agent, "green").await.ok();
    let (one, two) = tokio::join!(invoke(&agent), invoke(&there));
    let mut ends = [one.code(), two.code()];
    ends.sort_unstable();
    assert_eq!(ends, ["invalid_arguments", "ok"]);
    assert_eq!(site.count("POST"), 1);
}

#[tokio::test]
async fn a_draft_is_its_keys_own_and_sealed() {
    let stage = Stage::start().await;
    let site = theme_site("").await;
    let tenant = shop(&stage, &site).await;
    let (agent, colleague) = (tenant.agent().await, tenant.agent().await);
    set(&agent, "a-planted-color").await.ok();
    invoke(&colleague).await.refused("invalid_arguments");
    set(&colleague, "white").await.ok();
    let row: Vec<String> = {
        let mut connection = stage.database.connect().await;
        let rows = "select encode(sealed, 'escape') || to_jsonb(web_drafts)::text from web_drafts";
        sqlx::query_scalar(rows).fetch_all(&mut connection).await.unwrap()
    };
    assert!(row.len() == 2 && !row.concat().contains("planted"), "{row:?}");
    // a row that somebody moves to another key opens for nobody
    let moved = format!(
        "update web_drafts set sealed = (select sealed from web_drafts where principal_id = '{0}')",
        agent.id
    );
    stage.database.connect().await.execute(sqlx::AssertSqlSafe(moved)).await.unwrap();
    invoke(&colleague).await.refused("invalid_arguments");
    assert_eq!(invoke(&agent).await.ok()["structuredContent"]["class"], "accepted");
    assert_eq!(site.take()[1].body, "csrf_token=t&color=a-planted-color");
    // with a key, or its owner, go its drafts
    let (admin, key) = (tenant.admin().await, format!("/api/v1/keys/{}", colleague.id));
    assert_eq!(drafts(&stage).await, 1);
    tenant.platform.patch(&key, &json!({"owner": "somebody else"})).await.expect(200);
    assert_eq!(drafts(&stage).await, 0);
    set(&colleague, "white").await.ok();
    assert_eq!(drafts(&stage).await, 1);
    admin.delete(&key).await.expect(204);
    assert_eq!(drafts(&stage).await, 0);
}

#[tokio::test]
async fn a_draft_ends_a_quarter_of_an_hour_after_its_last_change() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")]).await;
    let site = theme_site("").await;
    let tenant = shop(&stage, &site).await;
    let agent = tenant.agent().await;
    set(&agent, "red").await.ok();
    let soon = "select count(*) from web_drafts where expires_at between now() + interval '14 minutes'
        and now() + interval '15 minutes'";
    assert_eq!(stage.database.count(soon).await, 1);
    let mut connection = stage.database.connect().await;
    connection.execute("update web_drafts set expires_at = now() + interval '1 minute'").await.unwrap();
    set(&agent, "blue").await.ok();
    assert_eq!(stage.database.count(soon).await, 1, "a change prolongs it");
    connection.execute("update web_drafts set expires_at = now()").await.unwrap();
    invoke(&agent).await.refused("invalid_arguments");
    assert_eq!(site.lines(), [""; 0]);
    eventually("the draft to be deleted", Duration::from_secs(10), || async {
        (drafts(&stage).await == 0).then_some(())
    })
    .await;
    // nothing of it is left in the next one
    let begun = set(&agent, "green").await.ok();
    assert!(begun["content"][0]["text"].as_str().unwrap().contains("begun"), "{begun}");
}

#[tokio::test]
async fn a_form_that_changes_ends_its_draft() {
    let stage = Stage::start().await;
    let site = theme_site("").await;
    let tenant = shop(&stage, &site).await;
    let (agent, admin) = (tenant.agent().await, tenant.admin().await);
    set(&agent, "red").await.ok();
    let changed = theme("t", r#"<input type=hidden name=amount value=100>"#);
    site.put("GET /list", Reply::page(&changed));
    invoke(&agent).await.refused("tool_changed");
    assert_eq!((site.lines(), drafts(&stage).await), (vec!["GET /list".to_owned()], 0));

    // also where a person has approved the other form meanwhile
    site.put("GET /list", Reply::page(&theme("t", "")));
    set(&agent, "red").await.ok();
    site.put("GET /list", Reply::page(&changed));
    admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    approve_changed(&admin).await;
    site.take();
    let refused = once_approved(&agent).await.refused("tool_changed");
    assert!(refused["message"].as_str().unwrap().contains("draft was dropped"), "{refused}");
    assert_eq!((site.lines(), drafts(&stage).await), (Vec::new(), 0));
    set(&agent, "red").await.ok();
    invoke(&agent).await.ok();
    assert_eq!(site.take()[1].body, "csrf_token=t&color=red&amount=100");
}

/// Sets a value once the approval is known here.
async fn once_approved(agent: &Api) -> Outcome {
    eventually("the approved definition to hold", SOON, || async {
        let outcome = set(agent, "blue").await;
        let is_old = outcome.raw().contains("waits for a person");
        (!is_old).then_some(outcome)
    })
    .await
}

#[tokio::test]
async fn an_invocation_asks_in_every_mode_about_all_that_the_draft_sends() {
    let stage = Stage::start().await;
    let site = theme_site(BOLD).await;
    let tenant = shop_with(&stage, &site, &["/list"], json!({})).await;
    let agent = tenant.agent_with(json!({"policy_mode": "observe"})).await;
    let approver = tenant.approver().await;
    set(&agent, "red").await.ok();
    let tick = json!({"selector": "#theme [name=\"bold\"]", "value": true});
    Mcp::bare(&agent).run("write", "shop:set_interaction", &tick).await.ok();
    let asked = invoke(&agent).await.refused("consent_pending");
    let id = asked["consent_id"].as_str().unwrap();
    let request = approver.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    let reason = request["reason"].as_str().unwrap();
    for part in ["POST", &site.at("/theme"), "Color of the list", "red", "Bold", "csrf_token (hidden)"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let allow = json!({"decision": "allow_once"});
    approver.post(&format!("/api/v1/consent/{id}/decision"), &allow).await.expect(200);
    // the permission is for that draft and for no other
    set(&agent, "black").await.ok();
    let other = invoke(&agent).await.refused("consent_pending");
    assert_ne!(other["consent_id"], asked["consent_id"]);
    assert_eq!(site.lines(), [""; 0]);
    set(&agent, "red").await.ok();
    invoke(&agent).await.ok();
    assert_eq!(site.take()[1].body, "csrf_token=t&color=red&bold=yes");
    invoke(&agent).await.refused("invalid_arguments");
    let record = &tenant.records("type=tool_call&tool=invoke&status=success", 1).await[0];
    assert_eq!(record["consent_id"], asked["consent_id"]);
}

#[tokio::test]
async fn steps_are_those_that_the_page_permits() {
    let stage = Stage::start().await;
    let bold = BOLD.replace("<input", "<input wam-policy-output=data");
    let site = theme_site(&bold).await;
    let tenant = shop(&stage, &site).await;
    let agent = tenant.agent().await;
    let names = async || -> Vec<String> {
        let found = Mcp::bare(&agent).search(&json!({"query": "theme", "include_site_tools": true})).await;
        let tools = found["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = names().await;
    assert!(
        ["shop:set_data", "shop:invoke"].iter().all(|name| listed.iter().any(|own| own == name)),
        "{listed:?}"
    );
    assert!(!listed.iter().any(|name| name == "shop:set_interaction"), "{listed:?}");
    set(&agent, "red").await.ok();
    let tick = json!({"selector": "#theme [name=\"bold\"]", "value": "yes"});
    Mcp::bare(&agent).run("write", "shop:set_data", &tick).await.refused("invalid_arguments");
    let mut record = tenant.records("type=tool_call&status=success", 1).await.remove(0);
    assert_eq!(record["tier"].take(), "write");

    // values that nothing may send are set by no step
    let admin = tenant.admin().await;
    site.put("GET /list", Reply::page(&theme("t", BOLD).replace("data interaction", "data")));
    admin.post("/api/v1/servers/shop/refresh", &json!({})).await.expect(200);
    settle(Vec::new(), SOON, names).await;
    let report = admin.get("/api/v1/servers/shop/page-report").await.expect(200);
    assert_eq!(report["pages"][0]["forms"][0]["hidden_because"], "not_permitted", "{report}");
    set(&agent, "red").await.refused("not_found");
}

#[tokio::test]
async fn drafts_of_a_key_are_bounded() {
    let stage = Stage::start().await;
    let site = theme_site("").await;
    let tenant = shop(&stage, &site).await;
    let agent = tenant.agent().await;
    set(&agent, "red").await.ok();
    let copies = "insert into web_drafts (tenant_id, principal_id, server_id, form, version, data_key_id, sealed, expires_at)
        select tenant_id, principal_id, server_id, sha256(n::text::bytea), gen_random_uuid(), data_key_id, sealed, expires_at
        from web_drafts, generate_series(1, 20) n";
    stage.database.connect().await.execute(copies).await.unwrap();
    let refused = set(&agent, "blue").await.refused("overloaded");
    assert!(refused["message"].as_str().unwrap().contains("20 drafts"), "{refused}");
    let fewer = "delete from web_drafts where form = sha256('1'::bytea)";
    stage.database.connect().await.execute(fewer).await.unwrap();
    set(&agent, "blue").await.ok();
    let long = json!({"selector": "#theme [name=\"color\"]", "value": "x".repeat(65_537)});
    Mcp::bare(&agent).run("write", "shop:set_data", &long).await.refused("invalid_arguments");
}

#[tokio::test]
async fn values_that_the_form_refuses_leave_the_draft() {
    let stage = Stage::start().await;
    let site = theme_site("").await;
    let tenant = shop(&stage, &site).await;
    let agent = tenant.agent().await;
    set(&agent, "").await.ok();
    let result = invoke(&agent).await.result();
    assert_eq!(result["structuredContent"]["class"], "validation_error", "{result}");
    assert_eq!(drafts(&stage).await, 1);
    set(&agent, "red").await.ok();
    invoke(&agent).await.ok();
    settle(1, SOON, || async { site.count("POST") }).await;
}

#[tokio::test]
async fn a_secret_of_the_server_goes_to_the_site_and_nowhere_else() {
    let stage = Stage::start().await;
    let site = theme_site(r#"<label>Pass word <input type=password name=pw required></label>"#).await;
    let secrets = json!({"execute": "policy", "field_secrets": {"pw": "planted-7731"}});
    let tenant = shop_with(&stage, &site, &["/list"], secrets).await;
    let agent = tenant.agent().await;
    let pw = json!({"selector": "#theme [name=\"pw\"]", "value": "mine"});
    Mcp::bare(&agent).run("write", "shop:set_data", &pw).await.refused("invalid_arguments");
    set(&agent, "red").await.ok();
    let asked = invoke(&agent).await.refused("consent_pending");
    let at = format!("/api/v1/consent/{}", asked["consent_id"].as_str().unwrap());
    let approver = tenant.approver().await;
    let request = approver.get(&at).await.expect(200);
    let reason = request["reason"].as_str().unwrap();
    assert!(reason.contains("\"Pass word\" [pw] (a secret of the server's settings)"), "{reason}");
    approver.post(&format!("{at}/decision"), &json!({"decision": "allow_once"})).await.expect(200);
    invoke(&agent).await.ok();
    assert_eq!(site.take()[1].body, "csrf_token=t&color=red&pw=planted-7731");
    let record = tenant.records("type=tool_call&tool=invoke&status=success", 1).await.remove(0);
    let rows = ledger(&tenant, &record["id"]).await;
    let server = tenant.admin().await.get("/api/v1/servers/shop").await.expect(200);
    assert_eq!(server["field_secrets"], json!(["pw"]));
    for shown in [&request, &record, &rows, &server] {
        assert!(!shown.to_string().contains("planted"), "{shown}");
    }
}
