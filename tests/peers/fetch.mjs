// Fetches URL and prints {"status", "reason", "text"}.

const response = await fetch(process.argv[2]);
const reason = response.headers.get("exeat-reason");
process.stdout.write(`${JSON.stringify({ status: response.status, reason, text: await response.text() })}\n`);
