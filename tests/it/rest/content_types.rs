//! What a body is said to be.

use reqwest::Method;
use serde_json::json;

use crate::support::{Answer, Api, Stage, Upstream, upstream};

/// What `curl -d` says when nobody tells it otherwise.
const CURLS: &str = "application/x-www-form-urlencoded";

async fn post(api: &Api, path: &str, content_type: &str, body: String) -> Answer {
    let request = api.request(Method::POST, path).header("Content-Type", content_type);
    api.send(request.body(body)).await
}

#[tokio::test]
async fn what_curl_sends_by_itself_is_taken() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    let platform = stage.platform();
    post(&platform, "/api/v1/tenants", CURLS, json!({"name": "other"}).to_string()).await.expect(201);
    let admin = tenant.admin().await;
    post(&admin, "/api/v1/keys", CURLS, json!({"role": "agent"}).to_string()).await.expect(201);
    let server = json!({"name": "zoo", "kind": "http", "url": upstream.url}).to_string();
    post(&admin, "/api/v1/servers", CURLS, server).await.expect(201);
    for body in ["", "{}"] {
        post(&admin, "/api/v1/servers/zoo/refresh", CURLS, body.to_owned()).await.expect(200);
    }
    let call =
        json!({"tool_variant": "call_tool_write", "name": "zoo:writer", "args": {"ticket": "a&b=c%20d"}});
    post(&admin, "/api/v1/tools/call", CURLS, call.to_string()).await.expect(200);
    assert_eq!(upstream.tickets(), ["a&b=c%20d"], "as it came");

    // it is JSON all the same, and what says it is something else is not looked at
    let form = "tool_variant=call_tool_write&name=zoo:writer";
    post(&admin, "/api/v1/tools/call", CURLS, form.to_owned()).await.refused(400, "invalid_request");
    for other in ["text/plain", "multipart/form-data; boundary=x", "application/xml"] {
        let answer = post(&admin, "/api/v1/tools/call", other, call.to_string()).await;
        assert!((400..500).contains(&answer.status), "{other}: {answer:?}");
    }
    assert_eq!(upstream.counts().calls, 1);
}
