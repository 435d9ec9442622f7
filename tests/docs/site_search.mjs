// The site's own search: its worker and its index, as a browser has them.
// node site_search.mjs SITE < queries.json
import fs from 'node:fs'
import vm from 'node:vm'

const site = process.argv[2]
const scripts = `${site}/assets/javascripts/workers/`
const script = fs.readdirSync(scripts).find((name) => /^search\..*\.js$/.test(name))
const context = { console }
const answered = []
let listener
context.self = context.globalThis = context
context.addEventListener = (_, callback) => { listener = callback }
context.postMessage = (message) => answered.shift()(message.data)
vm.runInNewContext(fs.readFileSync(scripts + script, 'utf8'), context)

const ask = (type, data) => new Promise((resolve) => { answered.push(resolve); listener({ data: { type, data } }) })
await ask(0, { ...JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, 'utf8')), options: { suggest: false } })
const found = {}
for (const query of JSON.parse(fs.readFileSync(0, 'utf8'))) {
  found[query] = (await ask(2, query)).items.map((page) => page.map((one) => one.location))
}
console.log(JSON.stringify(found))
