//! Lists the tools of the MCP server at URL and calls one: mcp_client [--auto] [--ask] URL TOOL JSON-ARGUMENTS.
//!
//! Opens a session, or with `--auto` asks the server first whether it can do without. With `--ask` the user accepts
//! whatever they are asked. Prints {"tools": [names], "asked": questions, "text": result}.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorData, FormElicitationCapability, Implementation, ProtocolVersion,
    UrlElicitationCapability,
};
use rmcp::service::RequestContext;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::json;

struct User {
    asks: bool,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.asks {
            let elicitation = ElicitationCapability::new().with_form(FormElicitationCapability::default());
            capabilities.elicitation = Some(elicitation.with_url(UrlElicitationCapability::default()));
        }
        ClientConfig::new(capabilities, Implementation::new("peer", "1.0.0"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let message = match request {
            ElicitRequestParams::FormElicitationParams { message, .. } => message,
            ElicitRequestParams::UrlElicitationParams { message, .. } => message,
            other => panic!("a question of a kind that this client does not know: {other:?}"),
        };
        self.asked.lock().unwrap().push(message);
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": "Ann", "answer": "yes" })))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    rustls::crypto::ring::default_provider().install_default().expect("nobody chose a provider before");
    let (flags, args): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let [url, tool, arguments] = <[String; 3]>::try_from(args).expect("URL TOOL JSON-ARGUMENTS");
    let lifecycle = if has("--auto") {
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None }
    } else {
        ClientLifecycleMode::Initialize
    };

    let asked = Arc::default();
    let user = User { asks: has("--ask"), asked: Arc::clone(&asked) };
    let client = user.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url), lifecycle).await?;
    let tools = client.list_all_tools().await?;
    let params = CallToolRequestParams::new(tool).with_arguments(serde_json::from_str(&arguments)?);
    let result = client.call_tool(params).await?;
    let text: Vec<_> = result.content.iter().filter_map(|part| Some(part.as_text()?.text.as_str())).collect();
    let tools: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    println!("{}", json!({ "tools": tools, "asked": *asked.lock().unwrap(), "text": text.join(" ") }));
    client.cancel().await?;
    Ok(())
}
