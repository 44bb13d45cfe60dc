// Preloaded into a Node program whose fetch does not read the proxy variables by itself (before Node 24).

import { EnvHttpProxyAgent, setGlobalDispatcher } from "undici";

setGlobalDispatcher(new EnvHttpProxyAgent());
