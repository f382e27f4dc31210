// Verify a webhook request with the library of Standard Webhooks, as a receiver in JavaScript does.
// Standard input: {"secret", "headers", "body"}, the body in base64. Standard output: {"event"} or {"refused"}.
import { readFileSync } from "node:fs";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const { secret, headers, body } = JSON.parse(readFileSync(0, "utf8"));
const raw = Buffer.from(body, "base64");
let answer;
try {
  answer = { event: new Webhook(secret).verify(raw, headers) };
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  answer = { refused: error.message };
}
console.log(JSON.stringify(answer));
