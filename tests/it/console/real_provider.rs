//! Login at an identity provider that others wrote, through three replicas.

use serde_json::json;

use super::{GATEWAY, SETTINGS};
use crate::logins::{register_url, set_rules};
use crate::support::{Gateway, Provider, SESSION, Stage, Visitor};

#[tokio::test]
async fn a_login_begins_ends_and_is_used_at_different_replicas() {
    let provider = Provider::oidc_provider(600).await;
    let (id, secret) = provider.register(&format!("{GATEWAY}/oauth/callback")).await;
    let own = [("MCPPROXY__CONSOLE__CLIENT_ID", id.as_str()), ("MCPPROXY__CONSOLE__CLIENT_SECRET", &secret)];
    let settings = [&SETTINGS[..], &own].concat();
    let stage = Stage::with(&settings).await;
    let others =
        [Gateway::start(&stage.database, &settings).await, Gateway::start(&stage.database, &settings).await];
    let tenant = stage.tenant("acme").await;
    register_url(&stage, &provider.url, "corp", "acme").await;
    set_rules(&tenant, json!([{"role": "operator"}])).await;

    let visitor = Visitor::by(&stage.gateway, GATEWAY);
    let back = visitor.to_provider("/console/login/provider?return_to=/console").await;
    let ended = visitor.at(&others[0]);
    let answer = ended.get(&back).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console"), "{answer:?}");
    let used = ended.at(&others[1]);
    let home = used.get("/console").await;
    // this provider puts no e-mail address into ID tokens, so the person is named by the subject
    for shown in ["ana", "<dd>operator</dd>", "<dd>acme</dd>"] {
        assert!(home.text.contains(shown), "{shown}: {}", home.text);
    }
    let session = used.cookie(SESSION).unwrap();

    // an answer counts once, at whichever replica it comes again
    for gateway in [&stage.gateway, &others[0], &others[1]] {
        let again = visitor.at(gateway).get(&back).await;
        assert!(again.status >= 400, "{again:?}");
    }
    let asked = provider.answered("/auth");
    let params = &asked[0]["params"];
    assert_eq!((&params["code_challenge_method"], &params["client_id"]), (&json!("S256"), &json!(id)));
    assert!(params["nonce"].is_string() && params["state"].is_string(), "{params}");
    let tokens = provider.answered("/token");
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert_eq!(tokens[0]["status"], 200, "{tokens:?}");

    let rows: String = stage.database.rows().await.into_iter().map(|(_, row)| row).collect();
    let logs: String = [&stage.gateway, &others[0], &others[1]].map(Gateway::log).concat();
    for hidden in [session.as_str(), &secret] {
        assert!(!rows.contains(hidden) && !logs.contains(hidden), "a secret was written");
    }
    // a logout at one replica is one at all
    used.post("/console/logout", &[]).await;
    for gateway in [&stage.gateway, &others[0]] {
        let gone = ended.at(gateway).get("/console").await;
        assert_ne!(gone.status, 200, "{gone:?}");
    }
}
