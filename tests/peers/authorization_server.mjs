// An authorization server: npm's `oidc-provider` on a free loopback port, with a client for each way of proving itself.
//
// Prints one JSON object a line: {"port", "refresh_token"} once it listens, then {"path", "grant", "resource", "status",
// "error"} for each answer. SETTINGS is a JSON object: `lifetime` of access tokens in seconds, `jwks` of the client that
// signs, `resource` that tokens may be for. GET /check?token=T, which is no part of the server, says what a token is.

import http from "node:http";
import { Provider } from "oidc-provider";

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
console.log = console.info = console.warn = console.error;

const { lifetime, jwks, resource } = JSON.parse(process.env.SETTINGS);
const machine = { grant_types: ["client_credentials"], redirect_uris: [], response_types: [] };
const clients = [
    { ...machine, client_id: "basic", client_secret: "s e:cret/+%=basic", token_endpoint_auth_method: "client_secret_basic" },
    { ...machine, client_id: "post", client_secret: "secret-post&x", token_endpoint_auth_method: "client_secret_post" },
    { ...machine, client_id: "signer", token_endpoint_auth_method: "private_key_jwt", token_endpoint_auth_signing_alg: "ES256", jwks },
    {
        client_id: "user-app",
        client_secret: "secret-user-app",
        grant_types: ["authorization_code", "refresh_token"],
        redirect_uris: ["https://app.test/callback"],
        response_types: ["code"],
    },
];

const server = http.createServer();
server.listen(0, "127.0.0.1", async () => {
    const { port } = server.address();
    const provider = new Provider(`http://127.0.0.1:${port}`, {
        clients,
        clientAuthMethods: ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"],
        enabledJWA: { clientAuthSigningAlgValues: ["ES256"] },
        features: {
            devInteractions: { enabled: false },
            clientCredentials: { enabled: true },
            resourceIndicators: {
                enabled: true,
                getResourceServerInfo: (_ctx, indicator) => {
                    if (indicator !== resource) throw new Error("unknown resource");
                    return { scope: "api:read", audience: indicator, accessTokenTTL: lifetime, accessTokenFormat: "opaque" };
                },
                useGrantedResource: () => true,
            },
        },
        findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
        rotateRefreshToken: true,
        scopes: ["openid", "offline_access", "api:read"],
        ttl: { AccessToken: lifetime, ClientCredentials: lifetime, RefreshToken: 3600, Grant: 3600 },
    });
    provider.use(async (ctx, next) => {
        await next();
        const params = ctx.oidc?.params ?? {};
        const { grant_type: grant, resource: asked } = params;
        say({ path: ctx.path, grant, resource: asked, status: ctx.status, error: ctx.body?.error });
    });
    const grant = new provider.Grant({ accountId: "alice", clientId: "user-app" });
    grant.addOIDCScope("openid offline_access");
    if (resource) grant.addResourceScope(resource, "api:read");
    const grantId = await grant.save();
    const client = await provider.Client.find("user-app");
    const refresh = new provider.RefreshToken({
        accountId: "alice",
        client,
        grantId,
        gty: "authorization_code",
        resource,
        scope: "openid offline_access api:read",
    });
    const handle = provider.callback();
    server.on("request", async (request, response) => {
        const url = new URL(request.url, "http://127.0.0.1");
        if (url.pathname !== "/check") return handle(request, response);
        const token = url.searchParams.get("token");
        const found = (await provider.ClientCredentials.find(token)) ?? (await provider.AccessToken.find(token));
        response.end(JSON.stringify({ kind: found?.kind, client: found?.clientId, audience: found?.aud, scope: found?.scope }));
    });
    say({ port, refresh_token: await refresh.save() });
});
