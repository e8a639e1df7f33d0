//! A client of the Agent Client Protocol, made of the official crates and driven by the integration tests.
//!
//! `acp-client URL KEY [SESSION]` connects, opens a session (or loads SESSION) and prints each event as a line of JSON.
//! Lines of standard input are commands: `answer KIND` answers the oldest open request by the option of that kind, `cancelled`
//! by that outcome, `forged` by an option that was never offered; `prompt` sends a prompt, `stop` cancels the turn.

use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest,
    PromptRequest, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionId, SessionNotification, TextContent,
};
use agent_client_protocol::{Agent, Client};
use agent_client_protocol_http::HttpClient;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Mutex, mpsc};

fn tell(event: serde_json::Value) {
    println!("{event}");
}

fn outcome(request: &RequestPermissionRequest, command: &str) -> RequestPermissionOutcome {
    let selected = |id: String| RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id));
    match command {
        "cancelled" => RequestPermissionOutcome::Cancelled,
        "forged" => selected("allow_everything".to_owned()),
        kind => {
            let is_it = |kind_of: &serde_json::Value| kind_of == kind.trim_start_matches("answer ");
            let option = request.options.iter().find(|option| is_it(&json!(option.kind)));
            selected(option.expect("an option of that kind").option_id.to_string())
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (url, key) = (arguments.next().expect("URL"), arguments.next().expect("KEY"));
    let load = arguments.next();
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_str(&key)?);
    let transport =
        HttpClient::builder(url).configure_http(|http| http.no_proxy().default_headers(headers)).build()?;
    let (answer, answers) = mpsc::channel::<String>(100);
    let answers = Arc::new(Mutex::new(answers));
    let done = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                tell(json!({ "update": notification.update }));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, cx| {
                tell(json!({ "permission": request }));
                let (answers, cancelled) = (Arc::clone(&answers), responder.cancellation());
                cx.spawn(async move {
                    let next = async { answers.lock().await.recv().await };
                    let command = tokio::select! {
                        command = next => command,
                        () = cancelled.cancelled() => None,
                    };
                    let Some(command) = command else {
                        tell(json!({ "withdrawn": request.tool_call.tool_call_id }));
                        return responder
                            .respond(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled));
                    };
                    responder.respond(RequestPermissionResponse::new(outcome(&request, &command)))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, async move |connection: ConnectionTo<Agent>| {
            let initialized =
                connection.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
            tell(json!({ "initialized": initialized }));
            let session: SessionId = match load {
                Some(session) => {
                    let session = SessionId::new(session);
                    let load = LoadSessionRequest::new(session.clone(), "/");
                    connection.send_request(load).block_task().await?;
                    session
                }
                None => connection.send_request(NewSessionRequest::new("/")).block_task().await?.session_id,
            };
            tell(json!({ "session": session }));
            let mut lines = BufReader::new(tokio::io::stdin()).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match line.as_str() {
                    "prompt" => {
                        let content = vec![ContentBlock::Text(TextContent::new("What waits?"))];
                        let prompt = PromptRequest::new(session.clone(), content);
                        let ended = connection.send_request(prompt).block_task().await?;
                        tell(json!({ "prompt": ended }));
                    }
                    "stop" => connection.send_notification(CancelNotification::new(session.clone()))?,
                    command => drop(answer.send(command.to_owned()).await),
                }
            }
            Ok(())
        })
        .await;
    tell(json!({ "ended": done.err().map(|error| error.to_string()) }));
    Ok(())
}
