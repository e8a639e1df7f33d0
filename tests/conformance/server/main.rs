//! The upstream server that the official conformance suite asks for, on rmcp's server side: the tools, prompts and
//! resources that the suite calls by name. For tests alone; the gateway is built without rmcp's server side.
//!
//!     cargo run --example conformance-server
//!
//! Any free port on loopback. Prints `listening http://127.0.0.1:PORT/mcp` when it is ready; ends with its standard
//! input.

#![expect(clippy::indexing_slicing, reason = "JSON has null where there is nothing")]
#![expect(deprecated, reason = "the suite asks for sampling and logging, which revision 2026-07-28 gave up")]

mod asking;
mod offers;
mod tools;

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
    GetPromptRequestParams, GetPromptResponse, Implementation, InitializeRequestParams, InitializeResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerInfo,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How long lists and resources may be kept, in milliseconds.
const TTL_MS: u64 = 60_000;

/// An rmcp type out of the JSON that it stands for.
fn typed<T: DeserializeOwned>(json: Value) -> Result<T, ErrorData> {
    serde_json::from_value(json).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A finished result, with what says so; rmcp leaves that out where a revision does not know it.
fn finished<T: DeserializeOwned>(mut json: Value) -> Result<T, ErrorData> {
    json["resultType"] = Value::from("complete");
    typed(json)
}

#[derive(Clone, Default)]
struct Fixture {
    /// Streams of `subscriptions/listen`, by the order they came in.
    listeners: Arc<Mutex<HashMap<u64, SubscriptionSink>>>,
    opened: Arc<AtomicU64>,
    tools_changed: Arc<AtomicU64>,
    prompts_changed: Arc<AtomicU64>,
}

impl Fixture {
    fn listeners(&self) -> Vec<SubscriptionSink> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Changes the list of tools and says so.
    async fn change_tools(&self) -> Value {
        self.tools_changed.fetch_add(1, Ordering::Relaxed);
        for listener in self.listeners() {
            drop(listener.notify_tool_list_changed().await);
        }
        tools::text("the tools changed")
    }

    /// Changes the list of prompts and says so.
    async fn change_prompts(&self) -> Value {
        self.prompts_changed.fetch_add(1, Ordering::Relaxed);
        for listener in self.listeners() {
            drop(listener.notify_prompt_list_changed().await);
        }
        tools::text("the prompts changed")
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        ServerInfo::new(capabilities).with_server_info(Implementation::new("conformance-server", "1.0.0"))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::definitions(0).ok()?.into_iter().find(|tool| tool.name == name)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let info = self.get_info();
        Ok(InitializeResult::new(info.capabilities)
            .with_protocol_version(request.protocol_version)
            .with_server_info(info.server_info))
    }

    async fn ping(&self, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let id = self.opened.fetch_add(1, Ordering::Relaxed);
        let listeners = || self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners().insert(id, context.sink().clone());
        context.cancelled().await;
        listeners().remove(&id);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools::definitions(self.tools_changed.load(Ordering::Relaxed))?;
        let list = ListToolsResult { tools, ..Default::default() };
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        if let Some(answer) = asking::in_rounds(&name, &request, &context)? {
            return Ok(answer);
        }
        let arguments = request.arguments.unwrap_or_default();
        let result = match name.as_str() {
            "test_trigger_tool_change" => self.change_tools().await,
            "test_trigger_prompt_change" => self.change_prompts().await,
            "test_tool_with_logging" => tools::with_logging(&context).await,
            "test_logging_tool" => tools::log_if_asked(&context).await,
            "test_tool_with_progress" => tools::with_progress(&context).await,
            "test_sampling" => asking::sample(&arguments, &context).await?,
            "test_elicitation" | "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
                asking::elicit(&name, &arguments, &context).await?
            }
            _ => tools::fixed(&name, &arguments)
                .ok_or_else(|| ErrorData::invalid_params(format!("no tool {name}"), None))?,
        };
        Ok(CallToolResponse::Complete(finished(result)?))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = ListResourcesResult { resources: typed(offers::resources())?, ..Default::default() };
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let resource_templates = typed(offers::templates())?;
        let list = ListResourceTemplatesResult { resource_templates, ..Default::default() };
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        offers::read(&request.uri, TTL_MS)
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = typed(offers::prompts(self.prompts_changed.load(Ordering::Relaxed)))?;
        let list = ListPromptsResult { prompts, ..Default::default() };
        Ok(list.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        offers::prompt(&request)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        offers::complete(&request)
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let fixture = Fixture::default();
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(fixture.clone()), sessions, Default::default());
    let app = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening http://{}/mcp", listener.local_addr()?)?;
    out.flush()?;
    let stdin_closed =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served?,
        _ = stdin_closed => {}
    }
    Ok(())
}
