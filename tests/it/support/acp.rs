//! A client of the Agent Client Protocol over a plain WebSocket: it says what a test wants, also what no client would.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::api::Api;

/// Longest wait of a test for the next message.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Connection of a client.
pub struct Acp {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Session that was opened last.
    pub session: String,
    /// Close code and reason, once the gateway has closed the socket.
    pub closed: Option<(u16, String)>,
}

impl Acp {
    /// Opens a WebSocket with further headers. Refused: status and body.
    pub async fn connect(api: &Api, more: &[(&'static str, &str)]) -> Result<Acp, (u16, String)> {
        let url = format!("{}/acp", api.base.replace("http://", "ws://"));
        let mut request = url.into_client_request().unwrap();
        let named = [("x-api-key", api.key.as_deref()), ("x-tenant", api.tenant.as_deref())];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        for (name, value) in named.chain(more.iter().copied()) {
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        match connect_async(request).await {
            Ok((socket, response)) => {
                assert!(!response.headers().contains_key("set-cookie"));
                Ok(Acp { socket, session: String::new(), closed: None })
            }
            Err(Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                Err((response.status().as_u16(), String::from_utf8_lossy(&body).into_owned()))
            }
            Err(error) => panic!("no answer to the upgrade: {error}"),
        }
    }

    /// Connects, greets and opens a session.
    pub async fn open(api: &Api) -> Acp {
        let mut acp = Acp::greeted(api).await;
        let opened = acp.ask("session/new", json!({"cwd": "/", "mcpServers": []})).await;
        acp.session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
        acp
    }

    /// Connects, greets and loads a session.
    pub async fn load(api: &Api, session: &str) -> Acp {
        let mut acp = Acp::greeted(api).await;
        let loaded =
            acp.ask("session/load", json!({"sessionId": session, "cwd": "/", "mcpServers": []})).await;
        assert_eq!(loaded["result"], json!({}));
        acp.session = session.to_owned();
        acp
    }

    async fn greeted(api: &Api) -> Acp {
        let mut acp = Acp::connect(api, &[]).await.unwrap();
        let client = json!({"name": "test-ide", "version": "1"});
        let greeted = acp.ask("initialize", json!({"protocolVersion": 1, "clientInfo": client})).await;
        assert_eq!(greeted["result"]["protocolVersion"], 1);
        assert_eq!(greeted["result"]["agentCapabilities"]["loadSession"], true);
        acp
    }

    /// Sends a request; returns its response, which comes next.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).await;
        self.next().await.unwrap()
    }

    pub async fn say(&mut self, message: &Value) {
        self.send(Message::text(message.to_string())).await;
    }

    /// Sends a frame; one that the gateway does not take any more is lost.
    pub async fn send(&mut self, message: Message) {
        drop(self.socket.send(message).await);
    }

    /// Returns the next message; `None` once the gateway has closed the socket.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(WAIT_MAX, self.socket.next()).await.expect("a message in time");
            match next {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    self.closed = frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// Reads, and so answers pings, until the gateway closes the socket.
    pub async fn listen(&mut self) {
        while let Some(Ok(_)) = self.socket.next().await {}
    }

    /// Returns the next request for permission, with what came before it.
    pub async fn asked(&mut self) -> Value {
        loop {
            let message = self.next().await.expect("a request for permission");
            if message["method"] == "session/request_permission" {
                return message;
            }
        }
    }

    /// Returns the next status of a call.
    pub async fn status(&mut self) -> Value {
        loop {
            let message = self.next().await.expect("an update");
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "tool_call_update" {
                return update["status"].clone();
            }
        }
    }

    /// Returns the text of the next update to this status; others are passed over.
    pub async fn said(&mut self, status: &str) -> String {
        loop {
            let message = self.next().await.expect("an update");
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "tool_call_update" && update["status"] == status {
                return update["content"][0]["content"]["text"].as_str().unwrap_or_default().to_owned();
            }
        }
    }

    /// Answers a request by the option of this kind.
    pub async fn answer(&mut self, request: &Value, kind: &str) {
        let options = request["params"]["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["kind"] == kind).unwrap();
        self.choose(request, option["optionId"].as_str().unwrap()).await;
    }

    /// Answers a request by this option, offered or not.
    pub async fn choose(&mut self, request: &Value, option: &str) {
        let outcome = json!({"outcome": "selected", "optionId": option});
        self.outcome(request, outcome).await;
    }

    pub async fn outcome(&mut self, request: &Value, outcome: Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {"outcome": outcome}})).await;
    }

    /// Cancels the turn.
    pub async fn stop(&mut self) {
        let params = json!({"sessionId": self.session});
        self.say(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params})).await;
    }

    /// Returns what a prompt is answered; requests for permission before it are passed over.
    pub async fn prompt(&mut self) -> String {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": "What waits?"}]});
        self.say(&json!({"jsonrpc": "2.0", "id": "prompt", "method": "session/prompt", "params": params}))
            .await;
        let mut says = String::new();
        loop {
            let message = self.next().await.expect("an answer to the prompt");
            if message["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
                says = message["params"]["update"]["content"]["text"].as_str().unwrap().to_owned();
            }
            if message["id"] == "prompt" {
                assert_eq!(message["result"]["stopReason"], "end_turn");
                return says;
            }
        }
    }
}
